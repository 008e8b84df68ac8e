#include "cli/compare_table.h"

#include <fmt/format.h>

#include "lab/quantity.h"
#include "lab/target.h"

namespace fathom::cli {
namespace {

using lab::ComparedVariant;

template <class T>
std::string interval(const T& change) {
  if (!change) return "";
  return lab::ratio_text(change->median) + " " +
         lab::ratio_interval_text(change->median, change->lo, change->hi);
}

std::string times(const ComparedVariant& row) {
  if (!row.time_a || !row.time_b) return "";
  return lab::time_text(row.time_a->median) + " -> " + lab::time_text(row.time_b->median);
}

std::string ratios(const ComparedVariant& row) {
  if (!row.ratio_a || !row.ratio_b) return "";
  return lab::ratio_text(row.ratio_a->median) + " -> " + lab::ratio_text(row.ratio_b->median);
}

std::string verdict(const ComparedVariant& row) {
  if (row.broke()) return "now fails";
  if (row.status_a != lab::Outcome::ok || row.status_b != lab::Outcome::ok) return "-";
  return std::string(measure::name(row.verdict)) + (row.advisory ? " (advisory)" : "");
}

std::string reason(const ComparedVariant& row) {
  if (!row.why.empty()) return row.why;
  switch (row.verdict) {
    case measure::Verdict::faster:
    case measure::Verdict::slower:
      return row.by_ratio ? "the ratio to the baseline moved"
                          : "the time moved, the ceiling kernel's did not";
    case measure::Verdict::same:
      return "the whole interval lies within the margin";
    case measure::Verdict::inconclusive:
      return "the interval crosses the margin: measure more rounds";
    case measure::Verdict::invalid:
      return "a measurement was invalid";
  }
  return "";
}

}  // namespace

Table compare_table(const lab::Comparison& comparison, Display display) {
  // The quantity that decides is shown: the ratio to the baseline, or the time of the baseline itself.
  Table table{.columns = {{"result"}, {"verdict"}, {"speed-up of B [95 %]", true}}, .rows = {}};
  if (display != Display::simple) {
    table.columns.push_back({"by"});
    table.columns.push_back({"A -> B", true});
  }
  if (display == Display::explain) {
    table.columns.push_back({"other quantity"});
    table.columns.push_back({"why"});
  }
  for (const ComparedVariant& row : comparison.variants) {
    const auto& change             = row.by_ratio ? row.ratio_change : row.time_change;
    std::vector<std::string> cells = {lab::result_id(row.experiment, row.variant, row.at), verdict(row),
                                      display != Display::simple ? interval(change)
                                      : change                   ? lab::ratio_text(change->median)
                                                                 : ""};
    if (display != Display::simple)
      cells.insert(cells.end(), {row.by_ratio ? "ratio" : "time", row.by_ratio ? ratios(row) : times(row)});
    if (display == Display::explain)
      cells.insert(cells.end(), {row.by_ratio ? times(row) : ratios(row), reason(row)});
    table.rows.push_back(std::move(cells));
  }
  return table;
}

Table compare_values(const lab::Comparison& comparison) {
  Table table{.columns = {{"result"},
                          {"verdict"},
                          {"by"},
                          {"advisory"},
                          {"regressed"},
                          {"time_change"},
                          {"time_change_lo"},
                          {"time_change_hi"},
                          {"ratio_change"},
                          {"ratio_change_lo"},
                          {"ratio_change_hi"},
                          {"why"}},
              .rows    = {}};
  for (const ComparedVariant& row : comparison.variants) {
    std::vector<std::string> cells = {
        lab::result_id(row.experiment, row.variant, row.at), std::string(measure::name(row.verdict)),
        row.by_ratio ? "ratio" : "time", row.advisory ? "true" : "false", row.regressed() ? "true" : "false"};
    for (const auto& change : {row.time_change, row.ratio_change})
      for (const auto part : {&measure::Interval::median, &measure::Interval::lo, &measure::Interval::hi})
        cells.push_back(change ? fmt::format("{:.6g}", (*change).*part) : "");
    cells.push_back(row.why);
    table.rows.push_back(std::move(cells));
  }
  return table;
}

std::string compare_summary(const lab::Comparison& comparison) {
  int faster = 0, slower = 0, same = 0, inconclusive = 0, broke = 0, advisory = 0;
  for (const ComparedVariant& row : comparison.variants) {
    if (row.broke()) {
      ++broke;
      continue;
    }
    if (row.advisory) {
      ++advisory;
      continue;
    }
    faster += row.verdict == measure::Verdict::faster;
    slower += row.verdict == measure::Verdict::slower;
    same += row.verdict == measure::Verdict::same;
    inconclusive += row.verdict == measure::Verdict::inconclusive;
  }
  std::string text =
      fmt::format("{} results in both: {} faster, {} slower, {} same, {} inconclusive, {} advisory",
                  comparison.variants.size(), faster, slower, same, inconclusive, advisory);
  if (broke > 0) text += fmt::format(", {} now fail", broke);
  if (!comparison.only_a.empty()) text += fmt::format("; {} only in A", comparison.only_a.size());
  if (!comparison.only_b.empty()) text += fmt::format("; {} only in B", comparison.only_b.size());
  return text;
}

}  // namespace fathom::cli
