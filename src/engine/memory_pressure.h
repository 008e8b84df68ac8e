// The ladder that an engine climbs as its KV cache fills. Each rung costs more than the one before:
//
//   forget   A free page keeps its cached prefix until it is allocated again (BlockPool). Forgetting earlier
//            would gain no page, so this rung needs no threshold; forgotten pages are counted.
//   hold     At the high watermark admission closes: running sequences keep the rest to grow. It opens again
//            when they have fallen to the low watermark.
//   spill    Pages of preempted sequences move to the host. Not written: it is for a cache on a GPU. On CPUs
//            the cache lies in the host's memory already.
//   preempt  A running sequence gives its pages back and is recomputed later.
//
// Between two watermarks the gate keeps its state (hysteresis): with one, it opens for every page that is
// given back, and the sequence that it lets in is soon preempted again.
#pragma once

#include <cstdint>

namespace fathom::engine {

class MemoryPressure {
 public:
  // Shares of the pages. A high watermark of 1: nobody watches, and admits() is not to be called.
  MemoryPressure(double high, double low) : high_(high), low_(low) {}

  bool watched() const { return high_ < 1; }
  // Whether a sequence may be admitted: running ones claim `before` of the `pages` pages, and `after` with
  // it.
  bool admits(int64_t before, int64_t after, int64_t pages) {
    const auto share = [&](int64_t claimed) {
      return static_cast<double>(claimed) / static_cast<double>(pages);
    };
    if (holding_ && share(before) > low_) return false;
    const bool full = share(after) > high_;
    if (full && !holding_) ++holds_;
    holding_ = full;
    return !full;
  }
  int64_t holds() const { return holds_; }  // times that the gate closed

 private:
  double high_, low_;
  bool holding_  = false;
  int64_t holds_ = 0;
};

}  // namespace fathom::engine
