// Deals the panels of matrix products to threads, in runs of neighbouring panels.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace fathom::kernels {

// Long runs first, because a thread reads weights fastest in one stretch; short runs at the end of each
// matrix, so that all threads finish together even if one is delayed.
class PanelScheduler {
 public:
  struct Run {
    int64_t matrix, begin, end;  // panels [begin, end) of the matrix; begin == end: no panels are left
  };

  PanelScheduler(int64_t matrices, int64_t panels, int threads)
      : total_(matrices * panels), panels_(panels), threads_(threads) {}

  Run take() {
    int64_t at = next_.load(std::memory_order_relaxed);
    while (at < total_) {
      const int64_t left = panels_ - at % panels_;
      const int64_t run  = std::max<int64_t>(left / (2 * threads_), 1);
      if (next_.compare_exchange_weak(at, at + run, std::memory_order_relaxed))
        return {at / panels_, at % panels_, at % panels_ + run};
    }
    return {};
  }

 private:
  const int64_t total_, panels_, threads_;
  alignas(64) std::atomic<int64_t> next_{0};
};

}  // namespace fathom::kernels
