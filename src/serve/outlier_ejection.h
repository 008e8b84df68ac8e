// Finds workers that answer, but much slower than the others, and ejects them for a while (outlier detection,
// as in Envoy: https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/upstream/outlier). Not safe
// from several threads at once.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace fathom::serve {

class OutlierEjection {
 public:
  using TimePoint    = std::chrono::steady_clock::time_point;
  using Milliseconds = std::chrono::milliseconds;
  struct Options {
    double factor = 5;              // slow: so many times the others' median time per token
    Milliseconds window{2'000};     // over which the time per token is a mean
    Milliseconds sustained{1'000};  // slow for so long: ejected
    // How long; twice as long each time in a row.
    Milliseconds ejection{5'000}, longest_ejection{60'000};
  };
  explicit OutlierEjection(const Options& options) : options_(options) {}

  // A stream of `worker` was waited for, for so many seconds, and so many tokens came. Also call it while
  // none comes, lest a worker that stops goes unnoticed. The time before a stream's first token is left out.
  void observe(size_t worker, double seconds, int64_t tokens, TimePoint now);
  // The workers that are ejected now. `serves`: which of all take requests. At most half of those are ejected
  // at a time, so the last never is.
  std::vector<size_t> judge(const std::vector<bool>& serves, TimePoint now);
  bool ejected(size_t worker, TimePoint now) const;

 private:
  struct Observed {
    double seconds = 0, tokens = 0;  // they fade by `window`
    TimePoint last                      = {};
    TimePoint ejected_until             = {};
    int in_a_row                        = 0;
    std::optional<TimePoint> slow_since = {};
  };
  std::optional<double> seconds_per_token(size_t worker, TimePoint now, Milliseconds oldest) const;
  std::optional<double> median_of_others(size_t worker, const std::vector<bool>& serves, TimePoint now) const;

  const Options options_;
  std::vector<Observed> observed_;
};

}  // namespace fathom::serve
