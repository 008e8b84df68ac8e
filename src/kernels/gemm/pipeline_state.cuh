// Where a producer or a consumer is in a ring of stages.
#pragma once

#include <cstdint>

namespace fathom::kernels {

// A stage and the parity of its current phase (CUTLASS: PipelineState).
template <int kStages>
struct PipelineState {
  int stage       = 0;
  uint32_t parity = 0;

  __device__ void next() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

}  // namespace fathom::kernels
