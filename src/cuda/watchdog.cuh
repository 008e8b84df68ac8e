// Ends a wait in a kernel that lasts too long, for what another GPU writes: the host sees a failed launch
// instead of a hang. The CUDA context is lost then.
#pragma once

#include <cstdint>

#include "cuda/system_scope.cuh"

namespace fathom {

// One for each wait; check() after each poll that found nothing.
class Watchdog {
 public:
  __device__ explicit Watchdog(int seconds) : limit_ns_(uint64_t(seconds) * 1'000'000'000) {}

  __device__ void check() {
    if (++polls_ % 4096 != 0) return;  // the clock is slow to read
    const uint64_t now = ptx::globaltimer();
    if (begin_ == 0) begin_ = now;
    if (now - begin_ > limit_ns_) __trap();
  }

 private:
  uint64_t limit_ns_, begin_ = 0;
  uint32_t polls_ = 0;
};

}  // namespace fathom
