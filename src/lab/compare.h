// Compares two runs: which variants became faster or slower, and for which the data cannot tell.
//
// Two kinds of numbers are compared. *Ratios* (baseline over variant, paired within each run) are valid
// across machines, neighbours and temperatures, because both sides of a pair had the same conditions: they
// decide. *Times* were measured at different moments; they decide only for baselines, which have no ratio,
// and only where the runs come from one machine whose control (limit_rate, measured between the same rounds)
// did not move. Else they are advisory: shown, never counted.
//
// Intervals of A and B are independent, so a quotient lies in [b.lo / a.hi, b.hi / a.lo]; verdicts follow
// from it and a margin as in measure/verdict.h. What is compared is always "above 1: B is better".
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/record.h"
#include "measure/interval.h"
#include "measure/verdict.h"

namespace fathom::lab {

struct CompareOptions {
  double margin = 0.02;
  std::string filter;  // regular expression on "ch07/transpose_cpu/tiled?n=4096"; empty: everything
};

struct ComparedVariant {
  std::string experiment, variant;
  Point at;
  std::optional<Spread> time_a, time_b;
  std::optional<Ratio> ratio_a, ratio_b;
  Outcome status_a = Outcome::ok, status_b = Outcome::ok;

  std::optional<measure::Interval> time_change;   // A's time over B's
  std::optional<measure::Interval> ratio_change;  // B's ratio over A's
  measure::Verdict verdict = measure::Verdict::inconclusive;
  bool by_ratio            = false;  // which of the two gave the verdict
  bool advisory            = false;  // the verdict counts for nothing; `why` says why
  std::string why;

  bool broke() const {
    return status_a == Outcome::ok && status_b != Outcome::ok && status_b != Outcome::skipped;
  }
  bool regressed() const { return broke() || (!advisory && verdict == measure::Verdict::slower); }
};

struct Comparison {
  std::string label_a, label_b, machine_a, machine_b;
  std::vector<ComparedVariant> variants;    // in B's order
  std::vector<std::string> only_a, only_b;  // result ids

  bool regressed() const;
};

// An invalid filter is an Error.
Result<Comparison> compare(const RunRecord& a, const RunRecord& b, const CompareOptions& options = {});

nlohmann::json to_json(const Comparison& comparison);

// The quotient of two medians with its interval, for results of different experiments or runs that a person
// asked to compare. Above 1, B is faster.
std::optional<measure::Interval> quotient(const std::optional<Spread>& a, const std::optional<Spread>& b);

}  // namespace fathom::lab
