// The two halves of RMSNorm for a block that has (a part of) a row in shared memory.
#pragma once

#include "cuda/warp_reduce.cuh"
#include "experiments/ch10_pipelining/rms_norm.h"

namespace fathom::lab::rms_norm {

// The calling thread's part of the sum of squares of row[0, count); count is a multiple of 4.
template <int kThreads>
__device__ inline float sum_squares(const float* row, int count) {
  float squares = 0;
  for (int i = 4 * threadIdx.x; i < count; i += 4 * kThreads) {
    const float4 v = *reinterpret_cast<const float4*>(row + i);
    squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
  return squares;
}

// The sum over all threads of the block; every thread gets it. Between two calls with the same `of_warp` lies
// another barrier, so that nobody overwrites what others have yet to read.
template <int kThreads>
__device__ inline float block_sum(float value, float (&of_warp)[kThreads / 32]) {
  const int lane = threadIdx.x % 32;
  value          = warp_reduce_sum(value);
  if (lane == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();  // of_warp is complete
  return warp_reduce_sum(lane < kThreads / 32 ? of_warp[lane] : 0);
}

__device__ inline float scale_of(float squares, int width) {
  return rsqrtf(squares / static_cast<float>(width) + RmsNorm::kEpsilon);
}

// out[0, count) = scale row[0, count)
template <int kThreads>
__device__ inline void store_scaled(const float* row, float scale, float* out, int count) {
  for (int i = 4 * threadIdx.x; i < count; i += 4 * kThreads) {
    const float4 v                      = *reinterpret_cast<const float4*>(row + i);
    *reinterpret_cast<float4*>(out + i) = {v.x * scale, v.y * scale, v.z * scale, v.w * scale};
  }
}

}  // namespace fathom::lab::rms_norm
