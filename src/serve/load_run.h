// A load test: requests go out when the arrival process says, whatever the target does, and what comes back
// is recorded.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "serve/load_statistics.h"
#include "serve/load_target.h"
#include "serve/workload.h"

namespace fathom::serve {

struct LoadProgress {
  int64_t total = 0, sent = 0, completed = 0, failed = 0;
  double elapsed_s = 0;
};

struct LoadOptions {
  int64_t max_concurrency = 0;  // requests under way at once; the next waits in the client. 0: no limit
  std::function<void(const LoadProgress&)> progress = {};  // every 50 ms at least, on the calling thread
  std::function<bool()> stop                        = {};  // asked as often: true cuts the run short
};

struct LoadResult {
  std::vector<RequestRecord> requests;
  double duration_s = 0;      // until the last answer ended, or the run was cut short
  bool interrupted  = false;  // and the target is of no more use
};

// Sends requests[i] at arrivals_s[i] (ascending, as many) and waits for all answers.
LoadResult run_load(LoadTarget& target, std::span<const LoadRequest> requests,
                    std::span<const double> arrivals_s, const LoadOptions& options = {});

// Of an open loop that offered all requests within `window_s`: the rate at which it answered them over the
// rate at which they came, at most 1. What a target that keeps up takes for one answer, the median of those
// asked for in the first quarter, is not held against it; counting what ends inside a window instead is off
// by whatever is under way at its ends, and by how the arrivals happen to fall: at 80 % load of 8 slots and
// windows of twenty answers that calls every fifth trial lost, this one in a hundred.
double completed_over_offered(std::span<const RequestRecord> requests, double window_s);

struct RateTrial {
  double request_rate;
  double completed_over_offered;
};
struct Saturation {
  double request_rate = 0;  // highest that was held; 0: none was
  std::vector<RateTrial> trials;
};
inline constexpr double kHeld = 0.95;  // completed over offered, at least

// The highest rate that the target holds: doubling (or halving) from `first_rate`, then `bisections` halvings
// of the ratio between the highest held and the lowest lost. `trial` runs one rate; none: cut short.
Saturation find_saturation(double first_rate, int bisections,
                           const std::function<std::optional<double>(double request_rate)>& trial);

}  // namespace fathom::serve
