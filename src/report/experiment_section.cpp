#include "report/experiment_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "lab/quantity.h"
#include "report/charts.h"
#include "report/highlights.h"
#include "report/page_frame.h"

namespace fathom::report {

using namespace lab;

namespace {

std::string sub(std::string_view text) {
  return text.empty() ? "" : fmt::format("<span class=\"sub\">{}</span>", escape(text));
}

// Tells a person how to make a skipped variant run.
std::string remedy(const Skip& skip) {
  const std::string need = skip.need.empty() ? "what it needs" : skip.need;
  if (skip.reason == "needs_cuda") return "Run a build with CUDA on a machine with an NVIDIA GPU.";
  if (skip.reason == "needs_feature") return fmt::format("Run on a machine that has {}.", need);
  if (skip.reason == "needs_gpus") return fmt::format("Run on a machine with {}.", need);
  if (skip.reason == "needs_library") return fmt::format("Install {} where the loader finds it.", need);
  if (skip.reason == "needs_memory") return fmt::format("Run where {} of memory is free.", need);
  if (skip.reason == "needs_permission") return fmt::format("Grant {}.", need);
  if (skip.reason == "needs_model") return fmt::format("Provide the model: {}.", need);
  if (skip.reason == "beyond_up_to") return fmt::format("Nothing to mend: declared for {} only.", need);
  return fmt::format("Provide {}.", need);
}

std::string outcome_word(Outcome outcome) {
  switch (outcome) {
    case Outcome::ok:
      return "ok";
    case Outcome::skipped:
      return "skipped";
    case Outcome::wrong:
      return "wrong output";
    case Outcome::invalid:
      return "invalid measurement";
    case Outcome::crashed:
      return "crashed";
    case Outcome::timeout:
      return "ran out of time";
    case Outcome::oom:
      return "ran out of memory";
  }
  return "unknown";
}

// "caught by poison: 3 of 1024 elements ..."; the parts that are known.
std::string why_text(const VariantRecord& variant) {
  std::string out;
  if (variant.caught_by) out = "caught by " + *variant.caught_by;
  for (const std::string& more : {variant.invalid_reason.value_or(""), variant.detail})
    if (!more.empty() && out.find(more) == std::string::npos) out += (out.empty() ? "" : ": ") + more;
  return out;
}

std::string name_cell(const VariantRecord& variant) {
  std::string tags = variant.kind;
  tags += variant.threads == 1 ? ", 1 thread" : fmt::format(", {} threads", variant.threads);
  for (const std::string& technique : variant.techniques) tags += ", " + technique;
  return fmt::format("<th scope=\"row\"><span class=\"id\">{}</span>{}{}</th>", escape(variant.id),
                     sub(variant.idea), sub(tags));
}

std::string time_cell(const VariantRecord& variant) {
  if (!variant.time_ns) return fmt::format("<td class=\"num\">{}</td>", kAbsent);
  const Spread& t = *variant.time_ns;
  std::string out = fmt::format("<td class=\"num\"><b>{}</b>{}", time_text(t.median),
                                sub(time_interval_text(t.median, t.lo, t.hi)));
  if (variant.wall_ns) out += sub("wall " + time_text(*variant.wall_ns));
  if (variant.prepare_ns) out += sub("prepared in " + time_text(*variant.prepare_ns));
  return out + "</td>";
}

std::string ratio_cell(const VariantRecord& variant, const PointRecord& point) {
  if (variant.ratio)
    return fmt::format("<td class=\"num\"><b>{}</b>{}</td>", ratio_text(variant.ratio->median),
                       sub(ratio_interval_text(variant.ratio->median, variant.ratio->lo, variant.ratio->hi)));
  return variant.id == point.baseline ? "<td class=\"num\">1<span class=\"sub\">baseline</span></td>"
                                      : fmt::format("<td class=\"num\">{}</td>", kAbsent);
}

std::string share_cell(const VariantRecord& variant) {
  if (!variant.share_of_limit || !std::isfinite(*variant.share_of_limit))
    return fmt::format("<td class=\"num\">{}</td>", kAbsent);
  const double share = *variant.share_of_limit;
  return fmt::format(
      "<td class=\"num\"><span class=\"meter\" aria-hidden=\"true\"><i "
      "style=\"width:{:.1f}%\"></i></span>{}</td>",
      std::clamp(share, 0.0, 1.0) * 100, share_text(share));
}

std::string rate_cell(const VariantRecord& variant) {
  std::string lines;
  const auto line = [&](const std::string& text) { lines += (lines.empty() ? "" : "<br>") + escape(text); };
  const double bytes = static_cast<double>(variant.bytes_read) + static_cast<double>(variant.bytes_written);
  if (variant.time_ns && variant.time_ns->median > 0) {
    const double seconds = variant.time_ns->median * 1e-9;
    if (bytes > 0) line(bytes_per_s_text(bytes / seconds));
    if (variant.flops > 0) line(flops_per_s_text(variant.flops / seconds));
  }
  for (const auto& [name, metric] : variant.metrics)
    if (name != "bytes_per_s" && name != "flops_per_s")
      line(fmt::format("{} {}", name, digits_text(metric.value)));
  return fmt::format("<td class=\"num\">{}</td>", lines.empty() ? std::string(kAbsent) : lines);
}

std::string checked_cell(const VariantRecord& variant) {
  if (!variant.checked) return fmt::format("<td class=\"num\">{}</td>", kAbsent);
  const Checked& c = *variant.checked;
  const std::string error =
      c.max_error == 0 && c.tolerance == 0
          ? "equal"
          : fmt::format("error {} of {}", error_text(c.max_error), error_text(c.tolerance));
  return fmt::format("<td class=\"num\">{} call{}{}{}</td>", count_text(c.timed_calls),
                     c.timed_calls == 1 ? "" : "s", sub(count_text(c.elements) + " elements"), sub(error));
}

std::string prediction_cell(const VariantRecord& variant) {
  if (!variant.prediction || variant.prediction->text.empty()) return fmt::format("<td>{}</td>", kAbsent);
  const PredictionScore& p = *variant.prediction;
  const char* held         = !p.held   ? "not scored"
                             : *p.held ? "<span class=\"good\">✓ held</span>"
                                       : "<span class=\"bad\">✗ failed</span>";
  return fmt::format("<td>{}{}</td>", held, sub(p.text));
}

std::string variant_row(const VariantRecord& variant, const PointRecord& point) {
  std::string out = "<tr>" + name_cell(variant);
  if (variant.status == Outcome::ok || (variant.status == Outcome::invalid && variant.time_ns)) {
    const bool advisory = point.aa && point.aa->advisory;
    out += time_cell(variant) + ratio_cell(variant, point) +
           fmt::format("<td>{}{}</td>", verdict_html(variant, advisory && variant.verdict.has_value()),
                       is_invalid(variant) ? sub(why_text(variant)) : "") +
           share_cell(variant) + rate_cell(variant) + checked_cell(variant) + prediction_cell(variant);
  } else if (variant.status == Outcome::skipped) {
    const Skip skip = variant.skip.value_or(Skip{"no reason recorded", ""});
    out += fmt::format("<td colspan=\"7\">– skipped: <span class=\"mono\">{}</span>{} {}</td>",
                       escape(skip.reason), skip.need.empty() ? "." : ", " + escape(skip.need) + ".",
                       escape(remedy(skip)));
  } else {
    out += fmt::format("<td colspan=\"7\"><span class=\"bad\"><b>✕ {}</b></span>{}</td>",
                       outcome_word(variant.status), sub(why_text(variant)));
  }
  return out + "</tr>\n";
}

void fact(std::string& out, std::string_view name, const std::string& value) {
  if (!value.empty()) out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", name, escape(value));
}

std::string noise_text(const std::map<std::string, double>& noise) {
  std::string out;
  for (const auto& [name, value] : noise) {
    std::string_view stem = name, unit;
    for (const std::string_view suffix : {"_ms", "_us", "_ns", "_s"})
      if (stem.ends_with(suffix)) {
        unit = suffix.substr(1);
        stem.remove_suffix(suffix.size());
        break;
      }
    std::string words(stem);
    std::replace(words.begin(), words.end(), '_', ' ');
    out += fmt::format("{}{} {}{}{}", out.empty() ? "" : ", ", words,
                       value == std::trunc(value) && std::abs(value) < 1e15
                           ? count_text(static_cast<int64_t>(value))
                           : digits_text(value),
                       unit.empty() ? "" : " ", unit);
  }
  return out;
}

std::string stopped_text(const PointRecord& point) {
  if (point.rounds == 0) return "";
  const std::string why = point.stopped == "precision" ? "stopped when precise enough"
                          : point.stopped == "rounds"  ? "stopped at the cap on rounds"
                          : point.stopped == "time"    ? "stopped at the cap on time"
                                                       : point.stopped;
  return fmt::format("{} of {} call{} a sample{}", count_text(point.rounds),
                     count_text(point.calls_per_sample), point.calls_per_sample == 1 ? "" : "s",
                     why.empty() ? "" : ", " + why);
}

std::string point_html(const ExperimentRecord& experiment, const PointRecord& point) {
  const std::string at = point_text(point.at);
  std::string out      = at.empty() ? "" : fmt::format("<h4>{}</h4>\n", escape(at));
  out += "<dl class=\"facts\">\n";
  fact(out, "limit", point.limit);
  if (point.floor_ns) fact(out, "floor", time_text(*point.floor_ns));
  fact(out, "cache", point.cache);
  fact(out, "clock", point.clock);
  fact(out, "rounds", stopped_text(point));
  if (point.aa && std::isfinite(point.aa->lo) && std::isfinite(point.aa->hi))
    fact(out, "baseline against itself", fmt::format("{:.3f} to {:.3f} (99 %)", point.aa->lo, point.aa->hi));
  fact(out, "noise", noise_text(point.noise));
  out += "</dl>\n";
  if (point.aa && point.aa->advisory)
    out +=
        "<p class=\"note doubt\"><span>⚠ The baseline differed from itself in this run, so every verdict at "
        "this "
        "point is advisory: run it again on a quieter machine.</span></p>\n";
  std::string table = fmt::format(
      "<table class=\"variants\">\n<caption>Variants{}: medians with 95 % "
      "intervals.</caption>\n<thead><tr><th "
      "scope=\"col\">Variant</th><th scope=\"col\" class=\"num\">Time</th><th scope=\"col\" "
      "class=\"num\">Speed-up</th><th scope=\"col\">Verdict</th><th scope=\"col\" class=\"num\">Share of "
      "limit</th><th "
      "scope=\"col\" class=\"num\">Declared rate</th><th scope=\"col\" class=\"num\">Checked</th><th "
      "scope=\"col\">Prediction</th></tr></thead>\n<tbody>\n",
      at.empty() ? "" : " at " + escape(at));
  for (const VariantRecord& variant : point.variants) table += variant_row(variant, point);
  return out + scroll_box("Variants of " + id_at(experiment, point), table + "</tbody></table>\n");
}

std::string charts_html(const ExperimentRecord& experiment, int number) {
  std::string figures;
  const auto figure = [&](const std::string& caption, const std::string& chart) {
    if (!chart.empty())
      figures += fmt::format("<figure><figcaption>{}</figcaption>\n{}</figure>\n", escape(caption), chart);
  };
  figure("Speed-up with interval. The band is ±2 %.",
         ratio_chart(experiment, fmt::format("e{}-ratios", number)));
  for (size_t p = 0; p < experiment.points.size(); ++p) {
    const std::string at = point_text(experiment.points[p].at);
    figure(fmt::format("Samples{}, round by round.", at.empty() ? "" : " at " + at),
           sample_chart(experiment.points[p], fmt::format("e{}-samples{}", number, p),
                        id_at(experiment, experiment.points[p])));
  }
  return figures.empty() ? "" : "<div class=\"charts\">\n" + figures + "</div>\n";
}

}  // namespace

std::string experiment_html(const ExperimentRecord& experiment, int number, bool stale) {
  std::string out = fmt::format("<section id=\"e{}\">\n<h3>{}{}</h3>\n<p class=\"lead\">{}</p>\n", number,
                                escape(experiment.id), stale ? "<span class=\"flag doubt\">stale</span>" : "",
                                escape(experiment.question));
  if (stale)
    out +=
        "<p class=\"note doubt\"><span>The source of this experiment has changed since it was measured: "
        "these "
        "numbers describe the older code.</span></p>\n";
  out += "<dl class=\"facts\">\n";
  fact(out, "backend", experiment.backend);
  fact(out, "evidence", experiment.evidence);
  std::string rows;
  for (const std::string& row : experiment.catalog) rows += (rows.empty() ? "" : ", ") + row;
  fact(out, "catalog", rows);
  if (experiment.seconds > 0) fact(out, "took", time_text(experiment.seconds * 1e9));
  out += "</dl>\n";
  if (experiment.points.empty()) {
    if (experiment.status == Outcome::skipped) {
      const Skip skip = experiment.skip.value_or(Skip{"no reason recorded", ""});
      out += fmt::format("<p>– Skipped: <span class=\"mono\">{}</span>{} {}</p>\n", escape(skip.reason),
                         skip.need.empty() ? "." : ", " + escape(skip.need) + ".", escape(remedy(skip)));
    } else {
      out += fmt::format("<p>No point was measured: {}. {}</p>\n", outcome_word(experiment.status),
                         escape(experiment.detail));
    }
  }
  for (const PointRecord& point : experiment.points) out += point_html(experiment, point);
  return out + charts_html(experiment, number) + "</section>\n";
}

std::string failures_html(const RunRecord& run) {
  std::string rows;
  const auto row = [&](const std::string& id, Outcome status, const std::string& by,
                       const std::string& detail) {
    rows += fmt::format(
        "<tr><th scope=\"row\" class=\"mono\">{}</th><td class=\"{}\">✕ {}</td><td "
        "class=\"mono\" data-name=\"caught by\">{}</td><td>{}</td></tr>\n",
        escape(id), status == Outcome::invalid ? "void" : "bad", outcome_word(status),
        by.empty() ? std::string(kAbsent) : escape(by),
        detail.empty() ? std::string(kAbsent) : escape(detail));
  };
  for (const ExperimentRecord& experiment : run.experiments) {
    if (experiment.points.empty() && experiment.status != Outcome::ok &&
        experiment.status != Outcome::skipped)
      row(experiment.id, experiment.status, "", experiment.detail);
    for (const PointRecord& point : experiment.points)
      for (const VariantRecord& v : point.variants) {
        if (is_valid(v) || v.status == Outcome::skipped) continue;
        const std::string detail = v.invalid_reason && v.detail.find(*v.invalid_reason) == std::string::npos
                                       ? *v.invalid_reason + (v.detail.empty() ? "" : ": " + v.detail)
                                       : v.detail;
        row(id_at(experiment, point, v.id), is_invalid(v) ? Outcome::invalid : v.status,
            v.caught_by.value_or(""), detail);
      }
  }
  if (rows.empty()) return "";
  return "<h2 id=\"failed\">What failed</h2>\n" +
         scroll_box(
             "What failed",
             "<table class=\"stack rows\">\n<caption>Variants whose numbers count for nothing, and "
             "why.</caption>\n<thead><tr><th "
             "scope=\"col\">Variant</th><th scope=\"col\">Outcome</th><th scope=\"col\">Caught by</th><th "
             "scope=\"col\">What happened</th></tr></thead>\n<tbody>\n" +
                 rows + "</tbody></table>\n");
}

std::string skips_html(const RunRecord& run) {
  // Grouped by reason and need: one line says what to provide, and what would run then.
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> skips;
  const auto add = [&](const std::optional<Skip>& skip, const std::string& id) {
    auto& ids = skips[skip ? std::pair{skip->reason, skip->need}
                           : std::pair{std::string("no reason recorded"), std::string()}];
    ids.push_back(id);
  };
  for (const ExperimentRecord& experiment : run.experiments) {
    if (experiment.points.empty() && experiment.status == Outcome::skipped)
      add(experiment.skip, experiment.id);
    for (const PointRecord& point : experiment.points)
      for (const VariantRecord& v : point.variants)
        if (v.status == Outcome::skipped) add(v.skip, id_at(experiment, point, v.id));
  }
  if (skips.empty()) return "";
  std::string rows;
  for (const auto& [skip, ids] : skips) {
    std::string list;
    for (const std::string& id : ids) list += (list.empty() ? "" : "<br>") + escape(id);
    rows += fmt::format(
        "<tr><th scope=\"row\" class=\"mono\">{}</th><td>{}</td><td class=\"mono\">{}</td></tr>\n",
        escape(skip.first), escape(remedy({skip.first, skip.second})), list);
  }
  return "<h2 id=\"skipped\">What did not run</h2>\n" +
         scroll_box("What did not run",
                    "<table class=\"stack rows\">\n<caption>Skips by reason, with what would run "
                    "them.</caption>\n<thead><tr><th "
                    "scope=\"col\">Reason</th><th scope=\"col\">What would run it</th><th "
                    "scope=\"col\">Skipped</th></tr></thead>\n<tbody>\n" +
                        rows + "</tbody></table>\n");
}

}  // namespace fathom::report
