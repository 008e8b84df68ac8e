#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/quantity.h"
#include "report/page_frame.h"
#include "report/report.h"

namespace fathom::report {

using namespace lab;

namespace {

std::string run_row(const RunSummary& run) {
  const std::string name = run.label.empty() ? date_text(run.started) : run.label;
  std::string best;
  for (const auto& [id, variant, ratio, power_w] : run.best)
    best += fmt::format(
        "<span class=\"line\"><b>{}</b> <span class=\"mono\">{}</span> <span "
        "class=\"small\">{}{}</span></span>",
        ratio_text(ratio.median), escape(id), escape(variant),
        power_w ? fmt::format(", {:.0f} W", *power_w) : "");
  return fmt::format(
      "<tbody><tr><th scope=\"row\"><a href=\"{}\">{}</a><span class=\"sub\">{}</span></th><td "
      "class=\"mono\">{}</td>"
      "<td class=\"num\" data-name=\"experiments\">{}</td><td class=\"num\" data-name=\"mean "
      "speed-up\">{}</td>"
      "<td class=\"best\">{}</td><td class=\"broad\">{}</td></tr></tbody>\n",
      escape(run.href), escape(name),
      run.label.empty() ? "" : fmt::format("<span class=\"sub\">{}</span>", escape(date_text(run.started))),
      escape(run.machine), run.tally.experiments,
      run.aggregate.mean ? ratio_text(*run.aggregate.mean) : std::string(kAbsent),
      best.empty() ? std::string(kAbsent) : best, tally_html(run.tally, run.href));
}

}  // namespace

RunSummary summary_of(const RunRecord& run, std::string href) {
  RunSummary summary{.href      = std::move(href),
                     .label     = run.label,
                     .started   = run.started,
                     .machine   = run.machine,
                     .tally     = tally_of(run),
                     .aggregate = geometric_mean_of(run),
                     .best      = {}};
  for (const ExperimentRecord& experiment : run.experiments) {
    std::optional<RunSummary::SpeedUp> top;
    for (const PointRecord& point : experiment.points) {
      const VariantRecord* best = best_of(point);
      if (!best || best->verdict != "FASTER" || (point.aa && point.aa->advisory)) continue;
      if (top && best->ratio->median <= top->ratio.median) continue;
      top = {.id = id_at(experiment, point), .variant = best->id, .ratio = *best->ratio, .power_w = {}};
      if (const auto power = point.noise.find("power_w"); power != point.noise.end())
        top->power_w = power->second;
    }
    if (top) summary.best.push_back(*top);
  }
  std::stable_sort(summary.best.begin(), summary.best.end(),
                   [](const auto& a, const auto& b) { return a.ratio.median > b.ratio.median; });
  if (summary.best.size() > 3) summary.best.resize(3);
  return summary;
}

std::string index_html(std::vector<RunSummary> runs) {
  // ISO 8601 in UTC sorts as text.
  std::stable_sort(runs.begin(), runs.end(),
                   [](const auto& a, const auto& b) { return a.started > b.started; });
  std::string out = page_head("Fathom logbook") + "<header>\n<h1>Fathom logbook</h1>\n";
  if (runs.empty())
    return out + "<p>No run yet: <code>fathom run</code> writes one.</p>\n</header>\n" + page_foot();
  out += fmt::format("<p>{} run{}, newest first.</p>\n</header>\n<main>\n", runs.size(),
                     runs.size() == 1 ? "" : "s");
  std::string table =
      "<table class=\"logbook stack rows\">\n<caption>Every run of this folder. The mean is geometric, over "
      "the "
      "best ratio of "
      "each experiment; speed-ups listed are FASTER beyond the margin.</caption>\n<thead><tr><th "
      "scope=\"col\">Run</th><th "
      "scope=\"col\">Machine</th><th scope=\"col\" class=\"num\">Experiments</th><th scope=\"col\" "
      "class=\"num\">Mean "
      "speed-up</th><th scope=\"col\">Best speed-ups</th><th scope=\"col\">Verdicts</th></tr></thead>\n";
  for (const RunSummary& run : runs) table += run_row(run);
  return out + scroll_box("Runs", table + "</table>\n") + "</main>\n" + page_foot();
}

}  // namespace fathom::report
