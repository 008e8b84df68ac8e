#include "cli/result_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "lab/quantity.h"
#include "lab/target.h"
#include "report/highlights.h"

namespace fathom::cli {
namespace {

using lab::Outcome;

template <class F>
void each_variant(const lab::RunRecord& run, F&& visit) {
  for (const lab::ExperimentRecord& experiment : run.experiments)
    for (const lab::PointRecord& point : experiment.points)
      for (const lab::VariantRecord& variant : point.variants) visit(experiment, point, variant);
}

std::string reason(Outcome status, const std::optional<lab::Skip>& skip, const std::string& detail) {
  if (skip && skip->need.empty() && !detail.empty()) return skip->reason + ": " + detail;
  if (skip) return fmt::format("{}{}{}", skip->reason, skip->need.empty() ? "" : ": ", skip->need);
  return detail.empty() ? std::string(to_string(status)) : detail;
}

// The text in the verdict's column for a variant without a verdict: the typed skip, or the error.
std::string verdict_text(const lab::PointRecord& point, const lab::VariantRecord& variant) {
  if (variant.status == Outcome::skipped)
    return "skipped: " + reason(variant.status, variant.skip, variant.detail);
  if (variant.status != Outcome::ok)
    return fmt::format("{}: {}", to_string(variant.status),
                       variant.caught_by ? "caught by " + *variant.caught_by
                                         : reason(variant.status, variant.skip, variant.detail));
  if (variant.id == point.baseline || !variant.verdict) return variant.id == point.baseline ? "baseline" : "";
  return *variant.verdict + (point.aa && point.aa->advisory ? " (advisory)" : "");
}

std::string prediction_text(const lab::VariantRecord& variant) {
  if (!variant.prediction || variant.prediction->text.empty()) return "";
  const auto& held = variant.prediction->held;
  return fmt::format("{}: {}", variant.prediction->text, !held ? "not scored" : *held ? "held" : "FAILED");
}

std::string interval(const std::optional<lab::Spread>& time) {
  if (!time) return "";
  return lab::time_text(time->median) + " " + lab::time_interval_text(time->median, time->lo, time->hi);
}

std::string interval(const std::optional<lab::Ratio>& ratio) {
  if (!ratio) return "";
  return lab::ratio_text(ratio->median) + " " + lab::ratio_interval_text(ratio->median, ratio->lo, ratio->hi);
}

std::string value(const std::optional<double>& number) {
  return number ? fmt::format("{:.6g}", *number) : "";
}

std::string metric(const lab::VariantRecord& variant, const char* name) {
  const auto found = variant.metrics.find(name);
  return found == variant.metrics.end() ? "" : value(found->second.value);
}

// The common reason why all variants at all points were skipped; absent if any of them ran.
std::optional<std::string> common_skip_reason(const lab::ExperimentRecord& experiment) {
  std::optional<std::string> why;
  for (const lab::PointRecord& point : experiment.points)
    for (const lab::VariantRecord& variant : point.variants) {
      if (variant.status != Outcome::skipped) return std::nullopt;
      const std::string text = verdict_text(point, variant);
      if (why && *why != text) return std::nullopt;
      why = text;
    }
  return why;
}

std::vector<std::string> result_row(const lab::ExperimentRecord& experiment, const lab::PointRecord& point,
                                    const lab::VariantRecord& variant) {
  return {report::id_at(experiment, point),
          variant.id,
          interval(variant.time_ns),
          interval(variant.ratio),
          verdict_text(point, variant),
          variant.share_of_limit ? lab::share_text(*variant.share_of_limit) : "",
          prediction_text(variant)};
}

const std::vector<Column> kResultColumns = {
    {"experiment", false, false}, {"variant"},   {"time [95 %]", true}, {"ratio [95 %]", true}, {"verdict"},
    {"of limit", true},           {"prediction"}};

constexpr size_t kTimeColumn = 2;

// Calls `visit` with the reason for each experiment without points, which gets one row.
template <class F>
void each_empty(const lab::RunRecord& run, F&& visit) {
  for (const lab::ExperimentRecord& experiment : run.experiments)
    if (experiment.points.empty())
      visit(experiment, fmt::format("{}: {}", to_string(experiment.status),
                                    reason(experiment.status, experiment.skip, experiment.detail)));
}

}  // namespace

Table result_table(const lab::RunRecord& run) {
  Table table{.columns = kResultColumns, .rows = {}};
  // Experiments skipped for the same reason share a row, so that the results stand out.
  std::map<std::string, std::vector<std::string>> skipped;  // experiments by reason
  for (const lab::ExperimentRecord& experiment : run.experiments) {
    if (const auto why = common_skip_reason(experiment)) {
      skipped[*why].push_back(experiment.id);
      continue;
    }
    for (const lab::PointRecord& point : experiment.points)
      for (const lab::VariantRecord& variant : point.variants)
        table.rows.push_back(result_row(experiment, point, variant));
  }
  for (const auto& [why, experiments] : skipped) {
    const std::string more =
        experiments.size() == 1 ? "" : fmt::format(" and {} more", experiments.size() - 1);
    table.rows.push_back({experiments.front() + more, "", "", "", why, "", ""});
  }
  each_empty(run, [&](const lab::ExperimentRecord& experiment, std::string why) {
    table.rows.push_back({experiment.id, "", "", "", std::move(why), "", ""});
  });
  return table;
}

std::string result_text(const lab::RunRecord& run, int columns) {
  Table table{.columns = kResultColumns, .rows = {}};
  table.columns.front().heading   = true;
  table.columns[kTimeColumn].name = "time";
  each_variant(run, [&](const auto& experiment, const auto& point, const lab::VariantRecord& variant) {
    if (variant.status == Outcome::skipped) return;
    table.rows.push_back(result_row(experiment, point, variant));
    // Of the two intervals a line has room for that of the ratio, which decides.
    if (variant.time_ns) table.rows.back()[kTimeColumn] = lab::time_text(variant.time_ns->median);
  });
  each_empty(run, [&](const lab::ExperimentRecord& experiment, std::string why) {
    if (experiment.status != Outcome::skipped)
      table.rows.push_back({experiment.id, "", "", "", std::move(why), "", ""});
  });
  return to_text(table, columns) + first_use_text(run, columns) + skips_text(run, columns);
}

std::string first_use_text(const lab::RunRecord& run, int columns) {
  Table table{.columns = {{"first use", false, false, true},
                          {"variant"},
                          {"process", true},
                          {"GPU", true},
                          {"inputs", true},
                          {"prepare", true},
                          {"first call", true},
                          {"later calls", true}},
              .rows    = {}};
  each_variant(run, [&](const auto& experiment, const auto& point, const lab::VariantRecord& variant) {
    if (point.cache != "cold_process" || !variant.time_ns) return;
    const auto part = [&](const char* name) {
      const auto found = variant.metrics.find(name);
      return found == variant.metrics.end() ? "" : lab::time_text(found->second.value);
    };
    table.rows.push_back({report::id_at(experiment, point), variant.id, part("process_start_ns"),
                          part("device_start_ns"), part("inputs_ns"),
                          variant.prepare_ns ? lab::time_text(*variant.prepare_ns) : "",
                          lab::time_text(variant.time_ns->median), part("later_call_ns")});
  });
  if (table.rows.empty()) return "";
  constexpr size_t kGpuColumn = 3;
  if (std::all_of(table.rows.begin(), table.rows.end(),
                  [](const auto& row) { return row[kGpuColumn].empty(); })) {
    table.columns.erase(table.columns.begin() + kGpuColumn);
    for (auto& row : table.rows) row.erase(row.begin() + kGpuColumn);
  }
  return "\n" + to_text(table, columns);
}

namespace {

// The rung below a skipped one that ran: what to use where the skipped one cannot run. Variants are declared
// in the order of their ladder.
std::optional<std::string> fallback(const lab::PointRecord& point, const lab::VariantRecord& skipped) {
  std::optional<std::string> below;
  for (const lab::VariantRecord& variant : point.variants) {
    if (&variant == &skipped) break;
    if (variant.status == Outcome::ok) below = variant.id;
  }
  return below;
}

}  // namespace

std::string skips_text(const lab::RunRecord& run, int columns) {
  struct Skipped {
    std::set<std::string> variants, experiments;  // several points of a variant count once
    std::set<std::string> fallbacks;
  };
  std::map<std::string, Skipped> by_reason;
  each_variant(run, [&](const auto& experiment, const auto& point, const lab::VariantRecord& variant) {
    if (variant.status != Outcome::skipped) return;
    Skipped& skipped = by_reason[reason(variant.status, variant.skip, variant.detail)];
    skipped.variants.insert(experiment.id + "/" + variant.id);
    skipped.experiments.insert(experiment.id);
    if (const auto below = fallback(point, variant)) skipped.fallbacks.insert(experiment.id + "/" + *below);
  });
  for (const lab::ExperimentRecord& experiment : run.experiments)
    if (experiment.points.empty() && experiment.status == Outcome::skipped)
      by_reason[reason(experiment.status, experiment.skip, experiment.detail)].experiments.insert(
          experiment.id);

  std::vector<std::pair<std::string, Skipped>> sorted(by_reason.begin(), by_reason.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second.experiments.size() > b.second.experiments.size();
  });
  const auto count = [](size_t n, const char* what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  std::string text;
  for (const auto& [why, skipped] : sorted) {
    constexpr size_t kNamed                        = 3;
    const auto& [variants, experiments, fallbacks] = skipped;
    const std::string where = experiments.size() <= kNamed ? fmt::format("{}", fmt::join(experiments, ", "))
                                                           : count(experiments.size(), "experiment");
    const std::string instead =
        fallbacks.size() == 1 ? fmt::format("; {} runs here", *fallbacks.begin()) : "";
    text += wrapped(
        (variants.empty() ? "" : count(variants.size(), "variant") + " of ") + where + ": " + why + instead,
        columns, "skipped: ");
  }
  return text;
}

Table result_values(const lab::RunRecord& run) {
  Table table{.columns = {{"experiment"},
                          {"at"},
                          {"variant"},
                          {"kind"},
                          {"status"},
                          {"reason"},
                          {"time_ns"},
                          {"time_lo_ns"},
                          {"time_hi_ns"},
                          {"ratio"},
                          {"ratio_lo"},
                          {"ratio_hi"},
                          {"verdict"},
                          {"advisory"},
                          {"share_of_limit"},
                          {"bytes_per_s"},
                          {"flops_per_s"},
                          {"prediction"},
                          {"held"}},
              .rows    = {}};
  each_variant(
      run, [&](const auto& experiment, const lab::PointRecord& point, const lab::VariantRecord& variant) {
        const auto part = [](const auto& spread, auto member) {
          return spread ? value((*spread).*member) : std::string();
        };
        const bool advisory = point.aa && point.aa->advisory;
        const bool scored   = variant.prediction && variant.prediction->held;
        table.rows.push_back(
            {experiment.id, point.at.to_string(), variant.id, variant.kind,
             std::string(to_string(variant.status)),
             variant.status == Outcome::ok ? "" : reason(variant.status, variant.skip, variant.detail),
             part(variant.time_ns, &lab::Spread::median), part(variant.time_ns, &lab::Spread::lo),
             part(variant.time_ns, &lab::Spread::hi), part(variant.ratio, &lab::Ratio::median),
             part(variant.ratio, &lab::Ratio::lo), part(variant.ratio, &lab::Ratio::hi),
             variant.verdict.value_or(""), advisory ? "true" : "false", value(variant.share_of_limit),
             metric(variant, "bytes_per_s"), metric(variant, "flops_per_s"),
             variant.prediction ? variant.prediction->text : "",
             !scored                     ? ""
             : *variant.prediction->held ? "true"
                                         : "false"});
      });
  for (const lab::ExperimentRecord& experiment : run.experiments) {
    if (!experiment.points.empty()) continue;
    std::vector<std::string> row(table.columns.size());
    row[0] = experiment.id;
    row[4] = to_string(experiment.status);
    row[5] = reason(experiment.status, experiment.skip, experiment.detail);
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table check_table(const lab::RunRecord& run) {
  Table table{.columns = {{"experiment", false, false}, {"variant"}, {"status"}, {"why"}}, .rows = {}};
  each_variant(run, [&](const auto& experiment, const auto&, const lab::VariantRecord& variant) {
    std::string why =
        variant.status == Outcome::ok ? "" : reason(variant.status, variant.skip, variant.detail);
    if (variant.caught_by) why = fmt::format("caught by {}: {}", *variant.caught_by, why);
    table.rows.push_back({experiment.id, variant.id,
                          variant.status == Outcome::ok ? "right" : std::string(to_string(variant.status)),
                          why});
  });
  each_empty(run, [&](const lab::ExperimentRecord& experiment, std::string why) {
    table.rows.push_back({experiment.id, "", std::string(to_string(experiment.status)), std::move(why)});
  });
  return table;
}

std::string check_text(const lab::RunRecord& run, int columns) {
  Table table{.columns = {{"experiment", false, false}, {"outputs"}, {"variants"}}, .rows = {}};
  // What failed comes last, where the end of a long log shows it.
  std::vector<std::vector<std::string>> others;
  for (const lab::ExperimentRecord& experiment : run.experiments) {
    std::string right;
    for (const lab::PointRecord& point : experiment.points)
      for (const lab::VariantRecord& variant : point.variants) {
        if (variant.status == Outcome::ok) right += (right.empty() ? "" : " ") + variant.id;
        if (variant.status == Outcome::ok || variant.status == Outcome::skipped) continue;
        const std::string why = reason(variant.status, variant.skip, variant.detail);
        others.push_back(
            {experiment.id, std::string(to_string(variant.status)),
             fmt::format("{}: {}{}", variant.id,
                         variant.caught_by ? "caught by " + *variant.caught_by + ": " : "", why)});
      }
    if (!right.empty()) table.rows.push_back({experiment.id, "right", right});
    if (experiment.points.empty() && experiment.status != Outcome::skipped)
      others.push_back({experiment.id, std::string(to_string(experiment.status)),
                        reason(experiment.status, experiment.skip, experiment.detail)});
  }
  table.rows.insert(table.rows.end(), others.begin(), others.end());
  return to_text(table, columns) + skips_text(run, columns);
}

std::string tally_text(const lab::RunRecord& run) {
  const report::Tally tally = report::tally_of(run);
  std::string text = fmt::format("{} experiment{}", tally.experiments, tally.experiments == 1 ? "" : "s");
  const auto add   = [&](int count, std::string_view what) {
    if (count > 0)
      text += fmt::format("{} {} {}", text.find(':') == std::string::npos ? ":" : ",", count, what);
  };
  add(tally.faster, "faster");
  add(tally.slower, "slower");
  add(tally.same, "same");
  add(tally.inconclusive, "inconclusive");
  add(tally.invalid, "INVALID");
  add(tally.failed, "FAILED");
  add(tally.skipped, "skipped");
  add(tally.advisory, "of these advisory");
  add(tally.predictions_held, "predictions held");
  add(tally.predictions_failed, "predictions failed");
  const report::Aggregate aggregate = report::geometric_mean_of(run);
  if (aggregate.mean)
    text += fmt::format("\nbest variants: {} on average (geometric mean over {} experiments)",
                        lab::ratio_text(*aggregate.mean), aggregate.experiments);
  return text;
}

}  // namespace fathom::cli
