// The factorization of 32 matrices by a block of kWarps warps: lane is matrix, warp w owns rows w, w +
// kWarps, ... The current column's elements pass through shared memory; all others stay in registers.
#pragma once

#include "cholesky.h"

namespace fathom::lab::register_pressure {

template <int kWarps>
__device__ void factor(const float* in, float* out, int n) {
  constexpr int kRows = kOrder / kWarps;  // of a thread
  static_assert(kRows * kWarps == kOrder);
  __shared__ float columns[2][kOrder][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, b = blockIdx.x * 32 + lane;
  const bool inside = b < n;  // all threads must reach the barriers

  // Row r kWarps + warp as far as the longest of these rows goes. Elements above the diagonal are computed
  // too and never used, so that all warps run the same code.
  float l[kRows][kOrder];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int j = 0; j < (r + 1) * kWarps; ++j) {
      const int i = r * kWarps + warp;
      l[r][j]     = inside && j <= i ? in[element(i, j) * n + b] : 0;
    }
    // After all loads, so that no load waits for another one.
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int j = r * kWarps; j < (r + 1) * kWarps; ++j) l[r][j] += j == r * kWarps + warp ? kRidge : 0;

#pragma unroll
  for (int k = 0; k < kOrder; ++k) {
    float(&column)[kOrder][32] = columns[k % 2];
#pragma unroll
    for (int r = k / kWarps; r < kRows; ++r) column[r * kWarps + warp][lane] = l[r][k];
    // The column is complete. Column k + 2 is written to the same place, but only after the barrier of k + 1,
    // which all readers of this column have passed too.
    __syncthreads();
    const float scale = rsqrtf(column[k][lane]);
#pragma unroll
    for (int r = k / kWarps; r < kRows; ++r) {
      l[r][k] *= scale;
      const int i = r * kWarps + warp;
      if (inside && i >= k) out[element(i, k) * n + b] = l[r][k];
    }
#pragma unroll
    for (int j = k + 1; j < kOrder; ++j) {
      const float of_column = column[j][lane] * scale;
#pragma unroll
      for (int r = j / kWarps; r < kRows; ++r) l[r][j] -= l[r][k] * of_column;
    }
  }
}

}  // namespace fathom::lab::register_pressure
