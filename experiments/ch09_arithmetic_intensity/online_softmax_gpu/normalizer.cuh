// Maximum and sum of exponentials of a row, found together in one walk. Milakov and Gimelshein, Online
// normalizer calculation for softmax, arXiv:1805.02867, 2018.
#pragma once

#include <cfloat>

#include "experiments/rows.cuh"
#include "exponential.cuh"

namespace fathom::lab::online_softmax_gpu {

// State over the elements seen so far. The initial maximum is finite, also times log2(e): with minus
// infinity, merging two empty states would compute a NaN.
struct Normalizer {
  float largest = -FLT_MAX / 2;
  float sum     = 0;  // of exp(x - largest)

  // Corrects the sum when the maximum grows, once for all given elements.
  template <int kWidth>
  __device__ void take(const rows::Elements<kWidth>& v) {
    float highest = v.at[0];
    for (int i = 1; i < kWidth; ++i) highest = fmaxf(highest, v.at[i]);
    if (highest > largest) {
      sum *= power_of_two((largest - highest) * kLog2e);
      largest = highest;
    }
    const float shift = largest * kLog2e;
    for (int i = 0; i < kWidth; ++i) sum += exponential(v.at[i], shift);
  }
};

__device__ inline Normalizer over_warp(Normalizer n) {
  const float largest = rows::over_warp(n.largest, rows::Larger{});
  const float sum     = n.sum * power_of_two((n.largest - largest) * kLog2e);
  return {largest, rows::over_warp(sum, rows::Plus{})};
}

// Reduces over the threads of a row: within warps, then in each warp over the results of all warps, one a
// lane.
template <int kThreads>
__device__ inline Normalizer over_row(Normalizer n, rows::Partial<kThreads>& of_largest,
                                      rows::Partial<kThreads>& of_sum) {
  n = over_warp(n);
  if constexpr (kThreads > 32) {
    rows::put(n.largest, of_largest);
    rows::put(n.sum, of_sum);
    __syncthreads();  // all warps have written both before any reads
    const int lane = threadIdx.x % 32;
    n              = {};
    if (lane < kThreads / 32) n = {of_largest.of_warp[lane], of_sum.of_warp[lane]};
    n = over_warp(n);
  }
  return n;
}

}  // namespace fathom::lab::online_softmax_gpu
