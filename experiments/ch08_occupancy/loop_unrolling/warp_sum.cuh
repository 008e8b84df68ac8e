// The sum of one number from each lane of a warp, valid in every lane.
#pragma once

namespace fathom::lab::loop_unrolling {

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) x += __shfl_xor_sync(~0u, x, lane);
  return x;
}

}  // namespace fathom::lab::loop_unrolling
