#include "report/experiment_panel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "lab/metric_text.h"
#include "lab/quantity.h"
#include "report/charts.h"
#include "report/diagnosis_lines.h"
#include "report/doubts.h"
#include "report/highlights.h"
#include "report/interval_bar.h"
#include "report/markdown.h"
#include "report/metrics_panel.h"
#include "report/page_frame.h"
#include "report/text_diff.h"

namespace fathom::report {

using namespace lab;

namespace {

std::string sub(std::string_view text) {
  return text.empty() ? "" : fmt::format("<span class=\"sub\">{}</span>", escape(text));
}

std::string name_cell(const VariantRecord& variant, bool on_gpu) {
  std::string tags = variant.kind;
  if (!on_gpu) tags += variant.threads == 1 ? ", 1 thread" : fmt::format(", {} threads", variant.threads);
  for (const std::string& technique : variant.techniques) tags += ", " + technique;
  return fmt::format("<th scope=\"row\"><span class=\"id\">{}</span>{}{}{}</th>", escape(variant.id),
                     sub(variant.idea), sub(variant.library), sub(tags));
}

std::string rate_text(const VariantRecord& variant) {
  std::string text;
  const double bytes = static_cast<double>(variant.bytes_read) + static_cast<double>(variant.bytes_written);
  if (!variant.time_ns || !(variant.time_ns->median > 0)) return text;
  const double seconds = variant.time_ns->median * 1e-9;
  if (bytes > 0) text = bytes_per_s_text(bytes / seconds);
  if (variant.flops > 0) text += (text.empty() ? "" : ", ") + flops_per_s_text(variant.flops / seconds);
  return text;
}

std::string time_cell(const VariantRecord& variant) {
  if (!variant.time_ns) return fmt::format("<td class=\"num\">{}</td>", kAbsent);
  const Spread& t = *variant.time_ns;
  std::string out = fmt::format("<td class=\"num\" data-name=\"time\"><b>{}</b>{}", time_text(t.median),
                                sub(time_interval_text(t.median, t.lo, t.hi)));
  out += sub(rate_text(variant));
  if (variant.wall_ns) out += sub("wall " + time_text(*variant.wall_ns));
  if (variant.prepare_ns) out += sub("prepared in " + time_text(*variant.prepare_ns));
  return out + "</td>";
}

std::string ratio_cell(const VariantRecord& variant, const PointRecord& point) {
  if (variant.ratio)
    return fmt::format("<td class=\"num\" data-name=\"speed-up\"><b>{}</b>{}</td>",
                       ratio_text(variant.ratio->median),
                       sub(ratio_interval_text(variant.ratio->median, variant.ratio->lo, variant.ratio->hi)));
  return variant.id == point.baseline ? "<td class=\"num\">1<span class=\"sub\">baseline</span></td>"
                                      : fmt::format("<td class=\"num empty\">{}</td>", kAbsent);
}

std::string share_cell(const VariantRecord& variant) {
  if (!variant.share_of_limit || !std::isfinite(*variant.share_of_limit))
    return fmt::format("<td class=\"num empty\">{}</td>", kAbsent);
  const double share = *variant.share_of_limit;
  return fmt::format(
      "<td class=\"num\" data-name=\"of limit\"><span class=\"meter\" aria-hidden=\"true\"><i "
      "style=\"width:{}\"></i></span>{}</td>",
      percent_text(100 * share), share_text(share));
}

// What was predicted beside what came of it.
std::string prediction_cell(const VariantRecord& variant) {
  if (!variant.prediction || variant.prediction->text.empty())
    return fmt::format("<td class=\"empty\">{}</td>", kAbsent);
  const PredictionScore& p = *variant.prediction;
  const bool share         = p.text.starts_with("share");
  std::string said         = p.text;
  if (const size_t sign = said.find(">="); sign != std::string::npos) said.replace(sign, 2, "≥");
  const std::string came = share ? variant.share_of_limit ? digits_text(*variant.share_of_limit, 2) : ""
                           : variant.ratio ? digits_text(variant.ratio->median)
                                           : "";
  return fmt::format("<td data-name=\"predicted\">{}{}<span class=\"sub\">{}</span></td>", escape(said),
                     came.empty() ? "" : " → " + escape(came),
                     !p.held   ? "not scored"
                     : *p.held ? "<span class=\"good\">✓ held</span>"
                               : "<span class=\"bad\">✗ failed</span>");
}

std::string checked_cell(const VariantRecord& variant) {
  if (!variant.checked) return fmt::format("<td class=\"num empty\">{}</td>", kAbsent);
  const Checked& c = *variant.checked;
  const std::string error =
      c.max_error == 0 && c.tolerance == 0
          ? "equal"
          : fmt::format("error {} of {}", error_text(c.max_error), error_text(c.tolerance));
  return fmt::format("<td class=\"num\" data-name=\"checked\">{} call{}{}{}</td>", count_text(c.timed_calls),
                     c.timed_calls == 1 ? "" : "s", sub(count_text(c.elements) + " elements"), sub(error));
}

std::string ladder_row(const VariantRecord& variant, const PointRecord& point, const Scale& scale,
                       bool on_gpu) {
  std::string out = "<tr>" + name_cell(variant, on_gpu);
  if (variant.status == Outcome::ok || (variant.status == Outcome::invalid && variant.time_ns)) {
    out += time_cell(variant) + ratio_cell(variant, point) +
           fmt::format("<td class=\"bar\">{}</td><td{}>{}{}</td>", interval_bar(scale, &variant),
                       variant.verdict || is_invalid(variant) ? "" : " class=\"empty\"",
                       verdict_html(variant, is_advisory(point) && variant.verdict.has_value()),
                       is_invalid(variant) ? sub(why_text(variant)) : "") +
           share_cell(variant) + prediction_cell(variant) + checked_cell(variant);
  } else if (variant.status == Outcome::skipped) {
    out += fmt::format("<td colspan=\"7\">– skipped: <span class=\"mono\">{}</span>. {}</td>",
                       escape(skip_words(variant.skip)),
                       variant.skip ? escape(remedy(*variant.skip)) : std::string());
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
    if (value == 0) continue;
    const auto [words, unit] = name_and_unit(name);
    out += fmt::format("{}{} {}{}{}", out.empty() ? "" : ", ", words, number_text(value),
                       unit.empty() ? "" : " ", unit);
  }
  return out;
}

std::string stopped_text(const PointRecord& point) {
  if (point.rounds == 0) return "";
  const std::string why   = point.stopped == "precision" ? "stopped when precise enough"
                            : point.stopped == "rounds"  ? "stopped at the cap on rounds"
                            : point.stopped == "time"    ? "stopped at the cap on time"
                                                         : point.stopped;
  const std::string calls = point.calls_per_sample == 0
                                ? ""  // of a session a sample is a replay
                                : fmt::format(" of {} call{} a sample", count_text(point.calls_per_sample),
                                              point.calls_per_sample == 1 ? "" : "s");
  return count_text(point.rounds) + calls + (why.empty() ? "" : ", " + why);
}

std::string point_facts(const PointRecord& point) {
  std::string out = "<dl class=\"facts\">\n";
  fact(out, "limit", point.limit);
  if (point.floor_ns) fact(out, "floor", time_text(*point.floor_ns));
  fact(out, "cache", point.cache);
  fact(out, "clock", point.clock);
  fact(out, "rounds", stopped_text(point));
  if (point.aa && std::isfinite(point.aa->lo) && std::isfinite(point.aa->hi))
    fact(out, "baseline against itself", fmt::format("{:.3f} to {:.3f} (99 %)", point.aa->lo, point.aa->hi));
  fact(out, "noise", noise_text(point.noise));
  out += "</dl>\n";
  if (is_advisory(point))
    out +=
        "<p class=\"note doubt\"><span>⚠ The baseline differed from itself in this run, so every verdict at "
        "this point is advisory: run it again on a quieter machine.</span></p>\n";
  return out;
}

std::string ladder(const ExperimentRecord& experiment, const PointRecord& point, const Scale& scale) {
  const std::string at = point_text(point.at);
  std::string table    = fmt::format(
         "<table class=\"ladder stack\">\n<caption>Variants{}: medians with 95 % "
            "intervals.</caption>\n<thead><tr><th "
            "scope=\"col\">Variant</th><th scope=\"col\" class=\"num\">Time</th><th scope=\"col\" "
            "class=\"num\">Speed-up</th><th class=\"bar\">{}</th><th scope=\"col\">Verdict</th><th scope=\"col\" "
            "class=\"num\">Share of limit</th><th scope=\"col\">Predicted → measured</th><th scope=\"col\" "
            "class=\"num\">Checked</th></tr></thead>\n<tbody>\n",
      at.empty() ? "" : " at " + escape(at), interval_axis(scale, 4));
  for (const VariantRecord& variant : point.variants)
    table += ladder_row(variant, point, scale, experiment.backend == "cuda");
  return scroll_box("Variants of " + id_at(experiment, point), table + "</tbody></table>\n");
}

std::string figure(const std::string& caption, const std::string& chart) {
  return chart.empty()
             ? ""
             : fmt::format("<figure><figcaption>{}</figcaption>\n{}</figure>\n", escape(caption), chart);
}

std::string roofline_figure(const RunRecord& run, size_t number, const ReportContext& context) {
  RunRecord alone;
  alone.experiments = {run.experiments[number]};
  const auto points = roofline_points(alone, context.roofs);
  if (points.empty())
    return "<p class=\"small\">No place under a roofline: the variants declare no flops, or no bytes.</p>\n";
  return figure(
      context.roofs.memory.empty() && context.roofs.compute.empty()
          ? "Flop/s over flops per declared byte. No ceilings of this machine are known: fathom roofline "
            "--calibrate."
          : "Under the measured ceilings of the machine.",
      roofline_place_svg(context.roofs, points, fmt::format("e{}-roofline", number)));
}

std::string point_html(const ExperimentRecord& experiment, size_t number, size_t p, const Scale& scale,
                       const ReportContext& context) {
  const PointRecord& point = experiment.points[p];
  return point_facts(point) + ladder(experiment, point, scale) + diagnosis_lines(experiment, point, context) +
         "<div class=\"charts\">\n" +
         figure("Each sample's deviation from its variant's median, with a histogram.",
                sample_chart(point, fmt::format("e{}-samples{}", number, p), id_at(experiment, point))) +
         metrics_html(point, fmt::format("e{}-metrics{}", number, p), id_at(experiment, point)) + "</div>\n";
}

// Other points than the headline open one by one.
std::string points_html(const ExperimentRecord& experiment, size_t number, const ReportContext& context) {
  std::vector<Ratio> ratios;
  for (const PointRecord& point : experiment.points)
    for (const VariantRecord& variant : point.variants)
      if (variant.ratio && variant.ratio->median > 0) ratios.push_back(*variant.ratio);
  const Scale scale           = ratio_scale(ratios);
  const PointRecord* headline = headline_point(experiment);
  std::string out;
  for (size_t p = 0; p < experiment.points.size(); ++p) {
    const PointRecord& point = experiment.points[p];
    if (experiment.points.size() == 1) {
      out += point_html(experiment, number, p, scale, context);
      continue;
    }
    const VariantRecord* best = best_of(point);
    out += fmt::format(
        "<details class=\"point\"{}><summary><span class=\"mono\">{}</span> <span "
        "class=\"small\">{}</span></summary>\n{}</details>\n",
        &point == headline ? " open" : "", escape(point_text(point.at)),
        best ? fmt::format(
                   "{} {}{}", escape(best->id), ratio_text(best->ratio->median),
                   best->share_of_limit ? ", " + share_text(*best->share_of_limit) + " of the limit" : "")
             : escape(why_no_best(experiment, &point)),
        point_html(experiment, number, p, scale, context));
  }
  return out;
}

std::string change_row(const ComparedVariant& v, bool several_points) {
  const auto& change = v.by_ratio ? v.ratio_change : v.time_change;
  return fmt::format(
      "<tr><th scope=\"row\" class=\"mono\">{}{}</th><td class=\"num\">{}</td><td class=\"num "
      "small\">{}</td><td>{}{}</td></tr>\n",
      escape(v.variant), several_points ? sub(point_text(v.at)) : "",
      change ? ratio_text(change->median) : std::string(kAbsent),
      change ? ratio_interval_text(change->median, change->lo, change->hi) : "",
      change && v.why.empty() ? escape(measure::name(v.verdict)) : "", sub(v.why));
}

// What differs in a table, what is the same in one that opens.
std::string change_html(const ExperimentRecord& experiment, const ReportContext& context) {
  if (!context.reference) return "<p class=\"small\">No reference records are at hand.</p>\n";
  const auto record = context.reference->records.find(experiment.id);
  if (record == context.reference->records.end())
    return fmt::format("<p class=\"small\">No reference record under {}.</p>\n",
                       escape(context.reference->folder));
  std::string differ, same;
  int count_same = 0;
  for (const ComparedVariant& v : context.reference->comparison.variants) {
    if (v.experiment != experiment.id) continue;
    const bool is_same = v.verdict == measure::Verdict::same && !v.broke();
    count_same += is_same ? 1 : 0;
    (is_same ? same : differ) += change_row(v, experiment.points.size() > 1);
  }
  std::string out = fmt::format(
      "<p class=\"small\">Against {}, written {} at commit {}. Above 1× is better than then; ratios are "
      "compared, and times where there is no ratio.</p>\n",
      escape(context.reference->folder), escape(date_text(record->second.written_at)),
      record->second.commit.empty() ? "unknown" : escape(record->second.commit));
  const auto table = [](const std::string& rows) {
    return "<div class=\"scroll\"><table class=\"change\"><tbody>\n" + rows + "</tbody></table></div>\n";
  };
  if (!differ.empty()) out += table(differ);
  if (count_same > 0)
    out += fmt::format("<details class=\"diff\"><summary>{} the same within 2 %</summary>\n{}</details>\n",
                       count_same, table(same));
  if (differ.empty() && same.empty())
    out += "<p class=\"small\">The record shares no result with this run.</p>\n";
  return out;
}

std::string diff_html(const VariantText& from, const VariantText& to) {
  constexpr size_t kShown = 120;
  const TextDiff diff     = text_diff(from.text, to.text);
  std::string lines;
  for (size_t i = 0; i < std::min(diff.lines.size(), kShown); ++i) {
    const auto& [kind, text] = diff.lines[i];
    switch (kind) {
      case DiffLine::Kind::same:
        lines += "  " + escape(text) + "\n";
        break;
      case DiffLine::Kind::removed:
        lines += "<del>- " + escape(text) + "</del>\n";
        break;
      case DiffLine::Kind::added:
        lines += "<ins>+ " + escape(text) + "</ins>\n";
        break;
      case DiffLine::Kind::gap:
        lines += "<i>⋯</i>\n";
        break;
    }
  }
  if (diff.lines.size() > kShown)
    lines += fmt::format("<i>{} more lines: fathom diff shows them</i>\n", diff.lines.size() - kShown);
  return fmt::format(
      "<details class=\"diff\"><summary><span class=\"mono\">{} → {}</span> <span class=\"small\">−{} +{} "
      "lines, {}</span></summary>\n<pre class=\"scroll\" tabindex=\"0\">{}</pre></details>\n",
      escape(from.id), escape(to.id), diff.removed, diff.added, escape(to.file), lines);
}

std::string sources_html(const ExperimentText& text) {
  std::string out;
  const VariantText* before = nullptr;
  for (const VariantText& variant : text.variants) {
    if (variant.is_op) {
      out += fmt::format("<p class=\"small\"><span class=\"mono\">{}</span> is the engine's op, {}.</p>\n",
                         escape(variant.id), escape(variant.file));
      continue;
    }
    if (before && before->file == variant.file)
      out += fmt::format("<p class=\"small\"><span class=\"mono\">{}</span> shares {} with {}.</p>\n",
                         escape(variant.id), escape(variant.file), escape(before->id));
    else if (before)
      out += diff_html(*before, variant);
    before = &variant;
  }
  return out.empty() ? "<p class=\"small\">No two variants have files of their own.</p>\n" : out;
}

std::string part(std::string_view title, const std::string& html) {
  return html.empty() ? "" : fmt::format("<section class=\"part\"><h4>{}</h4>\n{}</section>\n", title, html);
}

std::string texts_html(const ExperimentRecord& experiment, const ReportContext& context) {
  if (!context.texts)
    return part(
        "Notes and sources",
        "<p class=\"small\">The source tree is not here: fathom report shows notes and sources when it "
        "runs in one.</p>\n");
  const auto text = context.texts->find(experiment.id);
  if (text == context.texts->end())
    return part("Notes and sources",
                "<p class=\"small\">The source tree has no such experiment today.</p>\n");
  return part("From variant to variant", sources_html(text->second)) +
         part("Notes", text->second.notes.empty()
                           ? "<p class=\"small\">There are none.</p>\n"
                           : "<div class=\"prose\">" + markdown_html(text->second.notes, true) + "</div>\n");
}

}  // namespace

std::string experiment_panel(const RunRecord& run, size_t number, const ReportContext& context) {
  const ExperimentRecord& experiment = run.experiments[number];
  const bool timed =
      std::any_of(experiment.points.begin(), experiment.points.end(), [](const PointRecord& point) {
        return std::any_of(point.variants.begin(), point.variants.end(),
                           [](const VariantRecord& v) { return v.time_ns.has_value(); });
      });
  std::string out =
      fmt::format("<div class=\"panel\">\n<p class=\"lead\">{}</p>\n", escape(experiment.question));
  if (is_stale(experiment, context))
    out +=
        "<p class=\"note doubt\"><span>The source of this experiment has changed since it was measured: "
        "these "
        "numbers describe the older code.</span></p>\n";
  out += "<dl class=\"facts\">\n";
  fact(out, "backend", experiment.backend);
  if (timed) fact(out, "evidence", experiment.evidence);
  fact(out, "catalog", fmt::format("{}", fmt::join(experiment.catalog, ", ")));
  if (experiment.seconds > 0) fact(out, "took", time_text(experiment.seconds * 1e9));
  out += "</dl>\n";
  if (experiment.points.empty())
    out += fmt::format("<p>No point was measured: {}. {}</p>\n", outcome_word(experiment.status),
                       escape(experiment.detail));
  out += points_html(experiment, number, context);
  out += "<div class=\"parts\">\n";
  if (timed) out += part("Under the roofline", roofline_figure(run, number, context));
  out += part("Since the reference record", change_html(experiment, context));
  return out + texts_html(experiment, context) + "</div>\n</div>\n";
}

}  // namespace fathom::report
