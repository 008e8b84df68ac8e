#include "cli/target_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <regex>
#include <set>
#include <sstream>

#include "cli/usage_error.h"
#include "lab/registry.h"
#include "lab/source_hash.h"

namespace fathom::cli {
namespace {

std::regex filter_of(const std::string& text) {
  try {
    return std::regex(text);
  } catch (const std::regex_error& error) {
    throw UsageError(fmt::format("--filter '{}' is not a regular expression: {}", text, error.what()));
  }
}

// Keeps the variants with a matching id; false if none matches.
bool keep_matching(lab::Selection& selection, const lab::ExperimentInfo& experiment,
                   const std::regex& filter) {
  std::vector<std::string> kept;
  size_t wanted = 0;
  for (const lab::VariantInfo& variant : experiment.variants) {
    const auto& chosen = selection.variants;
    if (!chosen.empty() && std::find(chosen.begin(), chosen.end(), variant.id) == chosen.end()) continue;
    ++wanted;
    if (std::regex_search(experiment.id + "/" + variant.id, filter)) kept.push_back(variant.id);
  }
  if (kept.size() < wanted) selection.variants = kept;
  return !kept.empty();
}

std::vector<lab::Axis> axes_of(const TargetFlags& flags, std::vector<lab::Axis> axes) {
  std::vector<std::string> texts = words(flags.axes);
  for (const std::string& pair : words(flags.kwargs)) texts.push_back(pair);
  for (const std::string& text : texts) {
    auto axis = lab::parse_axis(text);
    if (!axis) throw UsageError("-a: " + axis.error().message);
    const auto same =
        std::find_if(axes.begin(), axes.end(), [&](const lab::Axis& a) { return a.name == axis->name; });
    if (same != axes.end())
      throw UsageError(
          fmt::format("axis '{0}' is given twice; list its values, e.g. -a {0}=[1,2]", axis->name));
    axes.push_back(std::move(*axis));
  }
  return axes;
}

// "-a variant=cluster" chooses variants, as the target .../cluster does. Takes that axis out of `axes`.
void choose_variants(std::vector<lab::Axis>& axes, std::vector<lab::Selection>& selections) {
  const auto axis =
      std::find_if(axes.begin(), axes.end(), [](const lab::Axis& a) { return a.name == "variant"; });
  if (axis == axes.end()) return;
  std::set<std::string> wanted, known;
  for (const lab::Value& value : axis->values) wanted.insert(lab::to_string(value));
  axes.erase(axis);
  for (lab::Selection& selection : selections) {
    std::vector<std::string> kept;
    for (const lab::VariantInfo& variant : lab::find_experiment(selection.experiment)->variants) {
      known.insert(variant.id);
      const auto& chosen = selection.variants;
      if (!chosen.empty() && std::find(chosen.begin(), chosen.end(), variant.id) == chosen.end()) continue;
      if (wanted.contains(variant.id)) kept.push_back(variant.id);
    }
    selection.variants = std::move(kept);
  }
  for (const std::string& id : wanted)
    if (!known.contains(id))
      throw UsageError(fmt::format("-a variant={}: no chosen experiment has it; there are {}", id,
                                   fmt::join(known, ", ")));
  std::erase_if(selections, [](const lab::Selection& selection) { return selection.variants.empty(); });
}

// Of several experiments, those that lack an axis which another one has are left out, with a word.
void keep_those_with(const std::vector<lab::Axis>& axes, std::vector<lab::Selection>& selections) {
  const auto has_all = [&](const lab::Selection& selection) {
    const std::vector<lab::Axis>& own = lab::find_experiment(selection.experiment)->axes;
    return std::all_of(axes.begin(), axes.end(), [&](const lab::Axis& axis) {
      return std::any_of(own.begin(), own.end(), [&](const lab::Axis& a) { return a.name == axis.name; });
    });
  };
  if (std::none_of(selections.begin(), selections.end(), has_all)) return;  // an error, and not this one's
  std::erase_if(selections, [&](const lab::Selection& selection) {
    if (has_all(selection)) return false;
    fmt::print(stderr, "{} is left out: it has no such axis\n", selection.experiment);
    return true;
  });
}

}  // namespace

void add_target_flags(CLI::App& verb, TargetFlags& flags) {
  verb.add_option("target", flags.names,
                  "What to take: ch07, ch07:transpose_cpu, a glob, .../variant (default: all)");
  verb.add_option("--targets", flags.targets, "The same, repeatable")->allow_extra_args(false);
  verb.add_option("-f,--filter", flags.filter,
                  "Only variants whose chapter/experiment/variant matches this REGEX");
  verb.add_option("--backend", flags.backend, "Only experiments of this backend")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  verb.add_option("-a,--axis", flags.axes,
                  "Values of a parameter in place of the declared: n=4096, n=[1024,4096], n=[2:10:2], "
                  "n[pow2]=[10:14]; variant=tiled chooses a variant")
      ->allow_extra_args(false);
  verb.add_option("--kwargs", flags.kwargs, "The same, several in one: \"n=4096 compression=lz4\"")
      ->allow_extra_args(false);
}

std::vector<std::string> words(const std::vector<std::string>& texts) {
  std::vector<std::string> out;
  for (const std::string& text : texts) {
    std::istringstream stream(text);
    for (std::string word; stream >> word;) out.push_back(word);
  }
  return out;
}

lab::Targets chosen_targets(const TargetFlags& flags) {
  const auto labels = lab::parse_labels(lab::labels_toml());
  if (!labels) throw UsageError(labels.error().message);
  std::vector<std::string> names = words(flags.names);
  for (const std::string& name : words(flags.targets)) names.push_back(name);
  auto targets = lab::resolve_targets(names, lab::experiments(), *labels);
  if (!targets) throw UsageError(targets.error().message);

  targets->axes = axes_of(flags, std::move(targets->axes));
  choose_variants(targets->axes, targets->selections);
  keep_those_with(targets->axes, targets->selections);
  const std::regex filter = filter_of(flags.filter);
  std::erase_if(targets->selections, [&](lab::Selection& selection) {
    const lab::ExperimentInfo& experiment = *lab::find_experiment(selection.experiment);
    if (!flags.backend.empty() && to_string(experiment.backend) != flags.backend) return true;
    return !keep_matching(selection, experiment, filter);
  });
  for (const lab::Selection& selection : targets->selections) {
    const lab::ExperimentInfo& experiment = *lab::find_experiment(selection.experiment);
    const auto axes = lab::override_axes(experiment.axes, targets->axes, experiment.check_at);
    if (!axes)
      throw UsageError(fmt::format("{}: {}; `fathom list {}` shows what it takes", selection.experiment,
                                   axes.error().message, selection.experiment));
  }
  if (targets->selections.empty() && targets->planned.empty())
    throw UsageError("nothing is left after --filter and --backend; `fathom list` shows what there is");
  return std::move(*targets);
}

}  // namespace fathom::cli
