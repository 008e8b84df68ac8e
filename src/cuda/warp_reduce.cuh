// Reductions and scans over the lanes of a warp, by shuffles. All 32 lanes call them, and all get the result.
// The order of additions is fixed, so that fp32 sums are reproducible.
//
// In the accumulator of an mma (cuda/ptx.cuh) lane 4 g + t has row g: the quad 4 g .. 4 g + 3 shares a row,
// and the eight lanes of equal t share columns.
#pragma once

#include <cuda_runtime.h>

namespace fathom {

template <class T>
__device__ inline T warp_reduce_sum(T value) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2) value += __shfl_xor_sync(~0u, value, other);
  return value;
}

// Over the four lanes of a quad.
__device__ inline float quad_reduce_sum(float value) {
  value += __shfl_xor_sync(~0u, value, 1);
  value += __shfl_xor_sync(~0u, value, 2);
  return value;
}
__device__ inline float quad_reduce_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(~0u, value, 1));
  value = fmaxf(value, __shfl_xor_sync(~0u, value, 2));
  return value;
}

// Over the eight lanes of equal lane % 4.
__device__ inline float column_reduce_sum(float value) {
#pragma unroll
  for (int other = 4; other < 32; other *= 2) value += __shfl_xor_sync(~0u, value, other);
  return value;
}
__device__ inline float column_reduce_max(float value) {
#pragma unroll
  for (int other = 4; other < 32; other *= 2) value = fmaxf(value, __shfl_xor_sync(~0u, value, other));
  return value;
}

// The sum over lanes 0 .. lane.
template <class T>
__device__ inline T warp_inclusive_sum(T value, int lane) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const T before = __shfl_up_sync(~0u, value, step);
    if (lane >= step) value += before;
  }
  return value;
}

}  // namespace fathom
