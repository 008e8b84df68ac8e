// The floor: a time below what the declared work needs on this machine is impossible, so the measurement is
// INVALID. The variant skipped work, the compiler removed it, or the declared cost is wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lab/experiment_info.h"
#include "lab/verified_call.h"

namespace fathom::lab {

// The bytes of one call: no more than the arena holds, and no more than it must move where memory is the
// limit.
int64_t working_set(const ExperimentInfo& experiment, const Problem& problem);
// The bytes that a control moves through the caches: those of all `sets` where calls rotate through them,
// since a call then finds what the caches kept of all. A floor takes one set: some of it may lie nearer.
int64_t rotated_bytes(const ExperimentInfo& experiment, const Problem& problem, int64_t sets);

// The shortest possible time of a call of `cost` by so many threads, from the highest rates ever measured on
// this machine at the level that holds the working set, whatever bounds the experiment. Absent where nothing
// is declared or known.
std::optional<double> floor_ns(Backend backend, const Cost& cost, int64_t working_set, int threads);

// The same after the rates that it rests on were measured again, a second or two: rates that were measured
// while the machine was busy are too low. Better ones are kept. A GPU's are not measured again.
std::optional<double> floor_measured_again(Backend backend, const Cost& cost, int64_t working_set,
                                           int threads);

// Below 0.9 of the floor a time is suspected, not yet caught: `probe_again` measures five more samples, for a
// first time that was the machine's hiccup, and the floor gives way to `fastest_control_ns`, what this run's
// own control took at its best, and to `floor_again`, for a floor that was measured too low. `median_ns` and
// all others: of one call.
std::optional<Caught> check_floor(double median_ns, std::optional<double> floor_ns,
                                  std::optional<double> fastest_control_ns,
                                  const std::function<std::vector<double>()>& probe_again,
                                  const std::function<std::optional<double>()>& floor_again);

// Beyond it the declared limit is not the limit.
inline constexpr double kLargestShare = 1.02;

// Catches a variant that is faster than the arithmetic peak of the instruction set it is compiled for or
// declares in .needs. `shares`: of that peak, one a round; `peak` in words. The floor does not see it, since
// it allows the widest instructions of the machine.
std::optional<Caught> check_peak(const std::vector<double>& shares, const std::string& peak);

}  // namespace fathom::lab
