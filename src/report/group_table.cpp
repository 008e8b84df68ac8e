#include "report/group_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "lab/quantity.h"
#include "report/highlights.h"
#include "report/page_frame.h"

namespace fathom::report {

using namespace lab;

namespace {

using Group = std::vector<size_t>;  // positions in the run

std::map<std::string, Group> groups_of(const RunRecord& run) {
  std::map<std::string, Group> groups;
  for (size_t i = 0; i < run.experiments.size(); ++i)
    if (!run.experiments[i].group.empty()) groups[run.experiments[i].group].push_back(i);
  // One experiment is no comparison, nor is one beside others that were skipped.
  std::erase_if(groups, [&](const auto& group) {
    return std::count_if(group.second.begin(), group.second.end(),
                         [&](size_t i) { return !was_skipped(run.experiments[i]); }) < 2;
  });
  return groups;
}

std::string time_cell(const VariantRecord* variant, std::string_view name) {
  return fmt::format(
      "<td class=\"num\" data-name=\"{}\">{}</td>", name,
      variant && variant->time_ns ? time_text(variant->time_ns->median) : std::string(kAbsent));
}

// The rate of the best variant, else of the baseline: rates compare where times of different sizes do not.
std::string rate_cell(const VariantRecord* variant) {
  std::string text;
  if (variant && variant->time_ns && variant->time_ns->median > 0) {
    const double seconds = variant->time_ns->median * 1e-9;
    const auto bytes     = static_cast<double>(variant->bytes_read + variant->bytes_written);
    if (bytes > 0) text = bytes_per_s_text(bytes / seconds);
    if (variant->flops > 0) text += (text.empty() ? "" : "<br>") + flops_per_s_text(variant->flops / seconds);
  }
  return fmt::format("<td class=\"num\" data-name=\"rate\">{}</td>",
                     text.empty() ? std::string(kAbsent) : text);
}

std::string point_cells(const PointRecord& point) {
  const VariantRecord* base  = baseline_of(point);
  const VariantRecord* best  = best_of(point);
  const VariantRecord* shown = best ? best : base;
  const std::string at       = point_text(point.at);
  return fmt::format(
      "<td class=\"mono{}\">{}</td>{}<td class=\"mono\" data-name=\"best\">{}</td>{}<td class=\"num\" "
      "data-name=\"speed-up\">{}</td><td class=\"num\" data-name=\"of limit\">{}</td>{}</tr>\n",
      at.empty() ? " empty" : "", escape(at), time_cell(base, "baseline"),
      best ? escape(best->id) : std::string(kAbsent), time_cell(best, "time"),
      best ? ratio_text(best->ratio->median) : std::string(kAbsent),
      shown && shown->share_of_limit ? share_text(*shown->share_of_limit) : std::string(kAbsent),
      rate_cell(shown));
}

std::string rows_of(const ExperimentRecord& experiment, size_t number) {
  // An experiment that was skipped as a whole has no row to link to.
  const std::string id =
      was_skipped(experiment)
          ? fmt::format("<span class=\"id\">{}</span>", escape(experiment.id))
          : fmt::format("<a class=\"id\" href=\"#e{}\">{}</a>", number, escape(experiment.id));
  const bool tried = !experiment.points.empty() && !was_skipped(experiment);
  std::string rows = fmt::format("<tbody>\n<tr><th scope=\"rowgroup\" rowspan=\"{}\">{}</th>",
                                 tried ? experiment.points.size() : 1, id);
  if (!tried)
    return rows + fmt::format("<td colspan=\"7\">{}</td></tr>\n</tbody>\n",
                              was_skipped(experiment) ? "skipped" : escape(why_no_best(experiment, nullptr)));
  for (size_t p = 0; p < experiment.points.size(); ++p)
    rows += (p == 0 ? "" : "<tr>") + point_cells(experiment.points[p]);
  return rows + "</tbody>\n";
}

}  // namespace

std::string groups_html(const RunRecord& run) {
  std::string out;
  for (const auto& [name, members] : groups_of(run)) {
    std::string table = fmt::format(
        "<table class=\"stack\">\n<caption>The same work: {}.</caption>\n<thead><tr><th "
        "scope=\"col\">Experiment</th><th scope=\"col\">Point</th><th scope=\"col\" "
        "class=\"num\">Baseline</th><th scope=\"col\">Best variant</th><th scope=\"col\" "
        "class=\"num\">Time</th><th scope=\"col\" class=\"num\">Speed-up</th><th scope=\"col\" "
        "class=\"num\">Share of limit</th><th scope=\"col\" class=\"num\">Declared "
        "rate</th></tr></thead>\n",
        escape(name));
    for (const size_t i : members) table += rows_of(run.experiments[i], i);
    out += scroll_box("Group " + name, table + "</table>\n");
  }
  return out.empty() ? "" : "<h2 id=\"groups\">Side by side</h2>\n" + out;
}

}  // namespace fathom::report
