// What an interval of a ratio lets one say.
#pragma once

#include <optional>
#include <string_view>

#include "measure/interval.h"

namespace fathom::measure {

// `invalid` is never the outcome of a ratio: the checks of a run (output, floor, fresh inputs) set it, and it
// overrides the rest.
enum class Verdict { faster, slower, same, inconclusive, invalid };

std::string_view name(Verdict verdict);  // "FASTER", ... as records spell it

// `ratio` is baseline time over variant time, above 1 is faster. The margin is symmetric in logarithms, from
// 1/(1+m) to 1+m, so that exchanging baseline and variant exchanges FASTER and SLOWER and nothing else:
//   FASTER        lo > 1+m
//   SLOWER        hi < 1/(1+m)
//   SAME          1/(1+m) <= lo and hi <= 1+m  (equivalence was shown, not merely no difference seen)
//   INCONCLUSIVE  anything else, and no interval at all
Verdict judge(const std::optional<Interval>& ratio, double margin = 0.02);

// The confidence of the A/A interval that `aa_is_advisory` expects.
inline constexpr double kAaConfidence = 0.99;

// The control: baseline against a clone of itself in the same rounds. True, and every verdict of the run is
// advisory, when the interval excludes 1 (the method is biased here) or could not be formed (nothing vouches
// for it).
bool aa_is_advisory(const std::optional<Interval>& aa_ratio);

}  // namespace fathom::measure
