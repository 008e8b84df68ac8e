#include "cli/experiment_list.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lab/registry.h"
#include "lab/source_hash.h"

namespace fathom::cli {
namespace {

using nlohmann::json;

template <class F>
void each(const lab::Targets& targets, F&& visit) {
  for (const lab::Selection& selection : targets.selections)
    visit(*lab::find_experiment(selection.experiment), selection);
}

bool is_chosen(const lab::Selection& selection, const std::string& variant) {
  const auto& chosen = selection.variants;
  return chosen.empty() || std::find(chosen.begin(), chosen.end(), variant) != chosen.end();
}

std::string variants_text(const lab::ExperimentInfo& experiment, const lab::Selection& selection) {
  std::vector<std::string> ids;
  for (const lab::VariantInfo& variant : experiment.variants)
    if (is_chosen(selection, variant.id)) ids.push_back(variant.id);
  return fmt::format("{}", fmt::join(ids, " "));
}

std::string axes_text(const lab::ExperimentInfo& experiment) {
  std::string text;
  for (const lab::Axis& axis : experiment.axes) {
    std::vector<std::string> values;
    for (const lab::Value& value : axis.values) values.push_back(lab::to_string(value));
    text += fmt::format("{}{}=[{}]", text.empty() ? "" : " ", axis.name, fmt::join(values, ","));
  }
  return text;
}

}  // namespace

std::string experiment_list_text(const lab::Targets& targets, int columns) {
  std::string text;
  each(targets, [&](const lab::ExperimentInfo& experiment, const lab::Selection& selection) {
    text += experiment.id + "\n" + wrapped(experiment.question, columns, "    ") +
            wrapped(variants_text(experiment, selection), columns, "    variants: ");
    if (!experiment.axes.empty()) text += wrapped(axes_text(experiment), columns, "    axes: ");
  });
  for (const lab::Planned& planned : targets.planned)
    text += planned.label + "\n" + wrapped(planned.detail, columns, "    ");
  return text;
}

Table experiment_list_table(const lab::Targets& targets) {
  Table table{.columns = {{"id"}, {"question"}, {"variants"}, {"axes"}}, .rows = {}};
  each(targets, [&](const lab::ExperimentInfo& experiment, const lab::Selection& selection) {
    table.rows.push_back(
        {experiment.id, experiment.question, variants_text(experiment, selection), axes_text(experiment)});
  });
  return table;
}

nlohmann::json experiment_list_json(const lab::Targets& targets) {
  json experiments = json::array(), planned = json::array();
  each(targets, [&](const lab::ExperimentInfo& experiment, const lab::Selection& selection) {
    json variants = json::array(), axes = json::object();
    for (const lab::VariantInfo& variant : experiment.variants) {
      if (!is_chosen(selection, variant.id)) continue;
      variants.push_back({{"id", variant.id},
                          {"kind", to_string(variant.kind)},
                          {"techniques", variant.techniques},
                          {"idea", variant.idea},
                          {"prediction", variant.prediction.to_string()},
                          {"threads", variant.threads}});
    }
    for (const lab::Axis& axis : experiment.axes)
      for (const lab::Value& value : axis.values)
        std::visit([&](const auto& v) { axes[axis.name].push_back(v); }, value);
    experiments.push_back({{"id", experiment.id},
                           {"question", experiment.question},
                           {"backend", std::string(to_string(experiment.backend))},
                           {"limit", to_string(experiment.limit)},
                           {"cache", to_string(experiment.cache)},
                           {"catalog", experiment.catalog},
                           {"aliases", experiment.aliases},
                           {"folder", experiment.folder},
                           {"source_hash", lab::source_hash(experiment.folder)},
                           {"axes", axes},
                           {"variants", variants}});
  });
  for (const lab::Planned& label : targets.planned)
    planned.push_back({{"label", label.label},
                       {"reason", label.skip.reason},
                       {"need", label.skip.need},
                       {"detail", label.detail}});
  return {{"schema", "fathom.list/1"},
          {"commit", std::string(lab::build_commit()) + (lab::build_dirty() ? "+" : "")},
          {"experiments", experiments},
          {"planned", planned}};
}

}  // namespace fathom::cli
