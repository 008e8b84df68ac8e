// Bounds how many requests are sent anew although they could stay where they are: a share of the requests
// that come, and a few a second (as Finagle's and Envoy's retry budgets). Retries beyond would load workers
// that are slow because they are loaded. Not safe from several threads at once.
#pragma once

#include <algorithm>
#include <chrono>

namespace fathom::serve {

class RetryBudget {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Options {
    double share      = 0.2;  // retries for each request
    double per_second = 1;    // and without any
    double most       = 10;   // saved up
  };
  explicit RetryBudget(const Options& options) : options_(options), left_(options.most) {}

  void request() { left_ = std::min(left_ + options_.share, options_.most); }
  // Whether one more may be sent; then it counts.
  bool take(TimePoint now) {
    if (last_ != TimePoint())
      left_ = std::min(left_ + options_.per_second * std::chrono::duration<double>(now - last_).count(),
                       options_.most);
    last_ = now;
    if (left_ < 1) return false;
    --left_;
    return true;
  }

 private:
  const Options options_;
  double left_;
  TimePoint last_;
};

}  // namespace fathom::serve
