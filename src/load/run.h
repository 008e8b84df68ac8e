// A load test: sends requests at the times of the arrival process, whatever the target does, and records the
// responses.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "load/statistics.h"
#include "load/target.h"
#include "load/workload.h"

namespace fathom::load {

struct Progress {
  int64_t total = 0, sent = 0, completed = 0, failed = 0;
  double elapsed_s = 0;
};

struct RunOptions {
  int64_t max_concurrency = 0;  // requests in flight; the next one waits in the client. 0: no limit
  std::function<void(const Progress&)> progress = {};  // called at least every 50 ms, on the calling thread
  std::function<bool()> stop                    = {};  // called equally often; true ends the run
};

struct RunResult {
  std::vector<RequestRecord> requests;
  double duration_s = 0;      // until the last response ended, or the run was stopped
  bool interrupted  = false;  // the target cannot be used any more
};

// Sends requests[i] at arrivals_s[i] (ascending, one for each request) and waits for all responses.
RunResult run(Target& target, std::span<const Request> requests, std::span<const double> arrivals_s,
              const RunOptions& options = {});

// For an open loop that offered all requests within `window_s`: the rate of completed requests over the rate
// of offered ones, at most 1.
//
// The time of the last completion is reduced by the latency of an unloaded target: the median over requests
// of the first quarter of the window. Counting completions inside a window instead is wrong by the requests
// in flight at its ends and by the randomness of the arrivals: at 80 % load of 8 slots, with windows of
// twenty responses, that rule rejects every fifth trial and this one 1 in 100.
double completed_over_offered(std::span<const RequestRecord> requests, double window_s);

struct RateTrial {
  double request_rate;
  double completed_over_offered;
};
struct Saturation {
  double request_rate = 0;  // the highest rate that was held; 0: none
  std::vector<RateTrial> trials;
};
inline constexpr double kHeld = 0.95;  // completed over offered, at least

// Finds the highest rate that the target holds: doubles (or halves) from `first_rate`, then bisects the ratio
// between the highest held and the lowest lost rate `bisections` times. `trial` runs one rate and returns its
// completed_over_offered(); none stops the search.
Saturation find_saturation(double first_rate, int bisections,
                           const std::function<std::optional<double>(double request_rate)>& trial);

}  // namespace fathom::load
