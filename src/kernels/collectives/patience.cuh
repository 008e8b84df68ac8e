// A bound on waits for another GPU, for kernels of collectives.
#pragma once

#include <cstdint>

#include "cuda/system_scope.cuh"

namespace fathom::kernels {

// Ends a wait that lasts too long: the host sees a failed launch instead of a hang.
class Patience {
 public:
  __device__ explicit Patience(int seconds) : seconds_(seconds) {}

  // After each poll.
  __device__ void check() {
    if (++polls_ % 4096 != 0) return;
    const uint64_t now = ptx::globaltimer();
    if (begin_ == 0) begin_ = now;
    if (now - begin_ > static_cast<uint64_t>(seconds_) * 1'000'000'000) __trap();
  }

 private:
  int seconds_;
  uint32_t polls_ = 0;
  uint64_t begin_ = 0;
};

}  // namespace fathom::kernels
