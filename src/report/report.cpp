#include "report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lab/quantity.h"
#include "report/charts.h"
#include "report/experiment_section.h"
#include "report/group_table.h"
#include "report/page_frame.h"

namespace fathom::report {

using namespace lab;

namespace {

// The value of the first member of that name anywhere in the manifest, so that its layout may grow.
const nlohmann::json* find_member(const nlohmann::json& json, const std::string& name) {
  if (json.is_object()) {
    if (const auto found = json.find(name); found != json.end() && found->is_string()) return &*found;
    for (const auto& member : json)
      if (const auto* found = find_member(member, name)) return found;
  }
  return nullptr;
}

std::string scalar_text(const nlohmann::json& json) {
  if (json.is_string()) return json.get<std::string>();
  if (json.is_null()) return std::string(kAbsent);
  return json.dump();
}

// Nested members as "machine.cpu.model"; a list of scalars is one row.
void flatten(const nlohmann::json& json, const std::string& name, std::string& rows) {
  const bool nested = json.is_object() ||
                      (json.is_array() && std::any_of(json.begin(), json.end(),
                                                      [](const auto& item) { return item.is_structured(); }));
  if (nested) {
    for (const auto& [key, value] : json.items()) flatten(value, name.empty() ? key : name + "." + key, rows);
    return;
  }
  std::string text;
  if (json.is_array())
    for (const auto& item : json) text += (text.empty() ? "" : ", ") + scalar_text(item);
  else
    text = scalar_text(json);
  rows += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", escape(name),
                      text.empty() ? std::string(kAbsent) : escape(text));
}

void summary_fact(std::string& out, std::string_view name, std::string_view value) {
  if (!value.empty()) out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(name), escape(value));
}

std::string header(const RunRecord& run, const nlohmann::json& manifest) {
  const Tally tally         = tally_of(run);
  const Aggregate aggregate = geometric_mean_of(run);
  const auto* commit        = find_member(manifest, "commit");
  double seconds            = 0;
  for (const ExperimentRecord& experiment : run.experiments) seconds += experiment.seconds;
  std::string out = fmt::format("<header>\n<h1>Fathom report{}</h1>\n<dl class=\"facts\">\n",
                                run.label.empty() ? "" : ": " + escape(run.label));
  summary_fact(out, "machine", run.machine);
  summary_fact(out, "started", date_text(run.started));
  if (commit) summary_fact(out, "commit", commit->get<std::string>());
  summary_fact(out, "experiments", fmt::format("{} at {} points", tally.experiments, tally.points));
  if (seconds > 0) summary_fact(out, "measured for", time_text(seconds * 1e9));
  out += "</dl>\n" + tally_html(tally);
  if (aggregate.mean)
    out += fmt::format("<p>Geometric mean of the best ratios: <b>{}</b> over {} experiment{}.",
                       ratio_text(*aggregate.mean), aggregate.experiments,
                       aggregate.experiments == 1 ? "" : "s");
  else
    out += "<p>No experiment has a valid ratio, so there is no mean.";
  if (!aggregate.excluded.empty()) {
    out += " Left out: ";
    for (const auto& excluded : aggregate.excluded)
      out += fmt::format("{}<span class=\"mono\">{}</span> ({})",
                         &excluded == &aggregate.excluded.front() ? "" : ", ", escape(excluded.id),
                         escape(excluded.reason));
    out += ".";
  }
  return out + "</p>\n</header>\n";
}

std::string summary_row(const ExperimentRecord& experiment, const PointRecord* point) {
  const VariantRecord* best = point ? best_of(*point) : nullptr;
  const std::string at      = point ? point_text(point->at) : "";
  if (!best)
    return fmt::format("<td class=\"mono{}\">{}</td><td colspan=\"5\">no valid ratio: {}</td>",
                       at.empty() ? " empty" : "", escape(at), escape(why_no_best(experiment, point)));
  const Ratio& r        = *best->ratio;
  const bool advisory   = point->aa && point->aa->advisory;
  std::string predicted = std::string(kAbsent);
  if (best->prediction && best->prediction->held)
    predicted = fmt::format("{}<span class=\"sub\">{}</span>",
                            *best->prediction->held ? "<span class=\"good\">✓ held</span>"
                                                    : "<span class=\"bad\">✗ failed</span>",
                            escape(best->prediction->text));
  return fmt::format(
      "<td class=\"mono{}\">{}</td><td class=\"mono\">{}{}</td><td class=\"num\"><b>{}</b><span "
      "class=\"sub\">{}</span></td>"
      "<td>{}</td><td class=\"num{}\" data-name=\"of limit\">{}</td><td{} data-name=\"prediction\">{}</td>",
      at.empty() ? " empty" : "", escape(at), escape(best->id),
      best->kind == "engine" ? "<span class=\"sub\">the engine's op</span>" : "", ratio_text(r.median),
      ratio_interval_text(r.median, r.lo, r.hi), verdict_html(*best, advisory),
      best->share_of_limit ? "" : " empty",
      best->share_of_limit ? share_text(*best->share_of_limit) : std::string(kAbsent),
      predicted == kAbsent ? " class=\"empty\"" : "", predicted);
}

std::string summary(const RunRecord& run) {
  if (run.experiments.empty()) return "<p>This run holds no experiment.</p>\n";
  std::string out =
      "<table class=\"summary stack\">\n<caption>The best variant of every experiment against its baseline, "
      "with 95 % "
      "intervals of the paired ratio. Above 1 is faster.</caption>\n<thead><tr><th "
      "scope=\"col\">Experiment</th><th scope=\"col\">Point</th><th scope=\"col\">Best variant</th><th "
      "scope=\"col\" "
      "class=\"num\">Speed-up</th><th scope=\"col\">Verdict</th><th scope=\"col\" class=\"num\">Share of "
      "limit</th><th "
      "scope=\"col\">Prediction</th></tr></thead>\n";
  for (size_t i = 0; i < run.experiments.size(); ++i) {
    const ExperimentRecord& experiment = run.experiments[i];
    out += fmt::format(
        "<tbody>\n<tr><th scope=\"rowgroup\" rowspan=\"{}\"><a class=\"id\" href=\"#e{}\">{}</a><span "
        "class=\"sub\">{}</span></th>",
        std::max<size_t>(experiment.points.size(), 1), i, escape(experiment.id), escape(experiment.question));
    if (experiment.points.empty()) out += summary_row(experiment, nullptr) + "</tr>\n";
    for (size_t p = 0; p < experiment.points.size(); ++p)
      out += (p == 0 ? "" : "<tr>") + summary_row(experiment, &experiment.points[p]) + "</tr>\n";
    out += "</tbody>\n";
  }
  return scroll_box("Summary", out + "</table>\n");
}

std::string overview(const RunRecord& run, const Roofs& roofs) {
  const auto points        = roofline_points(run, roofs);
  const std::string shares = share_chart(run);
  if (points.empty() && shares.empty()) return "";
  std::string out = "<h2 id=\"limits\">Against the limits of the machine</h2>\n<div class=\"overview\">\n";
  if (!points.empty()) {
    const bool measured = !roofs.memory.empty() || !roofs.compute.empty();
    const bool broken   = std::any_of(points.begin(), points.end(), [](const RooflinePoint& p) {
      return p.invalid && p.attainable && p.flops_per_s > *p.attainable;
    });
    out += fmt::format(
        "<figure><figcaption>Roofline. {} Arrows lead from a baseline to its best variant at declared flops "
        "and "
        "bytes.{}</figcaption>\n{}</figure>\n",
        measured
            ? escape(fmt::format("Roofs are measured ceilings{}.",
                                 roofs.measured.empty() ? "" : " (" + roofs.measured + ")"))
            : "No ceilings of this machine were measured, so there are no roofs: run <code>fathom roofline "
              "--calibrate</code>.",
        broken ? " A point above every roof is INVALID: its time or its declared cost is wrong, or the "
                 "ceilings are "
                 "too low and have to be measured again."
               : "",
        fmt::format(
            "<div class=\"scroll wide\" role=\"region\" aria-label=\"Roofline\" tabindex=\"0\">{}</div>",
            roofline_svg(roofs, points, SvgFor::page)));
  }
  if (!shares.empty()) {
    std::string without;
    for (const ExperimentRecord& experiment : run.experiments) {
      const bool shared =
          std::any_of(experiment.points.begin(), experiment.points.end(), [](const PointRecord& point) {
            const VariantRecord* best = best_of(point);
            return best && best->share_of_limit;
          });
      if (!shared)
        without += fmt::format("{}<span class=\"mono\">{}</span>", without.empty() ? "" : ", ",
                               escape(experiment.id));
    }
    out += fmt::format(
        "<figure><figcaption>Share of the limit: 100 % is what a control measured in the same run "
        "reached.</figcaption>\n{}{}</figure>\n",
        shares, without.empty() ? "" : fmt::format("<p class=\"small\">Without a share: {}.</p>\n", without));
  }
  return out + "</div>\n";
}

std::string environment(const RunRecord& run, const nlohmann::json& manifest) {
  std::string out = "<h2 id=\"environment\">Environment</h2>\n";
  if (manifest.is_discarded() || !manifest.is_object() || manifest.empty())
    return out + (run.manifest.empty()
                      ? "<p>The record holds no manifest.</p>\n"
                      : fmt::format("<p>The manifest is not a JSON object:</p><pre>{}</pre>\n",
                                    escape(run.manifest)));
  std::string rows;
  flatten(manifest, "", rows);
  return out + "<table class=\"environment\">\n<caption>The manifest of this run.</caption>\n<tbody>\n" +
         rows + "</tbody></table>\n";
}

}  // namespace

std::string report_html(const RunRecord& run, const Roofs& roofs,
                        const std::map<std::string, std::string>& source_now) {
  const nlohmann::json manifest = nlohmann::json::parse(run.manifest, nullptr, /*allow_exceptions=*/false);
  std::string out               = page_head(fmt::format("Fathom report {}", run.label));
  out += header(run, manifest);
  out += "<main>\n" + summary(run) + failures_html(run) + groups_html(run) + overview(run, roofs);
  if (!run.experiments.empty()) out += "<h2 id=\"experiments\">Experiments</h2>\n";
  for (size_t i = 0; i < run.experiments.size(); ++i) {
    const auto now   = source_now.find(run.experiments[i].id);
    const bool stale = now != source_now.end() && now->second != run.experiments[i].source_hash;
    out += experiment_html(run.experiments[i], static_cast<int>(i), stale);
  }
  out += skips_html(run) + environment(run, manifest);
  out += fmt::format(
      "</main>\n<footer>Written by fathom from {} of {}. Times are of one call. Ratios are paired: every "
      "round runs all variants, in changing order.</footer>\n",
      escape(run.schema), escape(date_text(run.started)));
  return out + page_foot();
}

}  // namespace fathom::report
