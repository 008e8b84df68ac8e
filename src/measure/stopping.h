// When to stop measuring. The rule sees widths of intervals only, never their position: a run that stops at
// the first significant difference finds one sooner or later, even between equals.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace fathom::measure {

struct StoppingRule {
  double half_width     = 0.01;  // of ln(ratio), so about a relative width: 0.01 on the CPU, 0.005 on a GPU
  double confidence     = 0.95;  // of each interval: the one that will be reported
  int64_t check_every   = 10;    // rounds
  int64_t min_rounds    = 20;
  double min_measured_s = 0.3;  // per variant
  int64_t max_rounds    = 400;
  double max_elapsed_s  = 10;
};

struct Progress {
  int64_t rounds                                  = 0;
  double elapsed_s                                = 0;   // everything since the first round, checks included
  double measured_s                               = 0;   // timed work only, of the variant with the least
  std::span<const std::vector<double>> log_ratios = {};  // one series per variant other than the baseline
};

enum class StopReason { precision, rounds, time };

std::string_view name(StopReason reason);  // "precision", "rounds", "time"

// Called after every round; absent means continue. The maxima apply at any round, before the minima. The
// width is checked every `check_every` rounds and must be small at two successive checks: a rule that takes
// the first small width selects for luck (on a machine with sticky states, 5.3 % false claims instead of 2.7
// %, and 7.8 % misses instead of 4.8 %, for 16 to 35 rounds saved). A variant without an interval is never
// precise.
std::optional<StopReason> should_stop(const StoppingRule& rule, const Progress& progress);

}  // namespace fathom::measure
