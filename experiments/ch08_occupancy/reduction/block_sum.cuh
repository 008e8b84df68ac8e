// The sum of one number from each thread of a block, by shuffles.
#pragma once

namespace fathom::lab::reduction {

// Valid in every lane.
template <int kLanes = 32>
__device__ float warp_sum(float x) {
#pragma unroll
  for (int lane = kLanes / 2; lane > 0; lane /= 2) x += __shfl_xor_sync(~0u, x, lane);
  return x;
}

// Valid in every thread. All threads of the block must call it, with a barrier between two calls, because
// both use the same words of shared memory.
template <int kThreads>
__device__ float block_sum(float x) {
  constexpr int kWarps = kThreads / 32;
  __shared__ float of_warp[kWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  x = warp_sum(x);
  if (lane == 0) of_warp[warp] = x;
  __syncthreads();  // the sums of all warps are there
  return warp_sum<kWarps>(of_warp[lane % kWarps]);
}

}  // namespace fathom::lab::reduction
