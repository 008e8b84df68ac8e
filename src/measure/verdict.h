// The verdict on a variant, from the interval of its ratio to the baseline.
#pragma once

#include <optional>
#include <string_view>

#include "measure/interval.h"

namespace fathom::measure {

// `invalid` never comes from a ratio: the checks of a run (output, floor, fresh inputs) set it, and it
// overrides the others.
enum class Verdict { faster, slower, same, inconclusive, invalid };

std::string_view name(Verdict verdict);  // "FASTER", as in records

// `ratio` is baseline time over variant time, above 1 is faster. The margin is symmetric in logarithms, from
// 1/(1+m) to 1+m, so that exchanging baseline and variant exchanges FASTER and SLOWER and changes nothing
// else:
//   FASTER        lo > 1+m
//   SLOWER        hi < 1/(1+m)
//   SAME          1/(1+m) <= lo and hi <= 1+m  (shows equivalence, not merely no difference)
//   INCONCLUSIVE  otherwise, and where there is no interval
Verdict judge(const std::optional<Interval>& ratio, double margin = 0.02);

// The confidence of the A/A interval for aa_is_advisory().
inline constexpr double kAaConfidence = 0.99;

// The A/A control compares the baseline with a clone of itself in the same rounds. True when its interval
// excludes 1 (the method is biased on this run) or is absent (the method is unchecked): every verdict of the
// run is then advisory.
bool aa_is_advisory(const std::optional<Interval>& aa_ratio);

}  // namespace fathom::measure
