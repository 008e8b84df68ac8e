// The kernel: a persistent grid of as many warps as asked for, each thread with so many vectors of x and of y
// in flight before it uses the first.
#pragma once

#include "cuda/check.h"
#include "cuda/multiprocessors.h"
#include "experiments/rows.cuh"
#include "residual.h"

namespace fathom::lab::bytes_in_flight {

inline constexpr int kThreads = 128;  // a warp for each scheduler of a multiprocessor

__device__ inline uint4 sum_of(uint4 x, uint4 y) {
  const auto a = rows::unpack(x), b = rows::unpack(y);
  rows::Elements<rows::kEight> sum;
#pragma unroll
  for (int e = 0; e < rows::kEight; ++e) sum.at[e] = a.at[e] + b.at[e];
  return rows::pack(sum);
}

// `vectors` of 16 bytes, and fewer than 8 numbers after them. A block takes kEach * kThreads vectors at a
// time.
template <int kEach>
__global__ void __launch_bounds__(kThreads)
    residual_kernel(const bf16* x, const bf16* y, bf16* out, int vectors, int rest) {
  const uint4 *xs = rows::eights(x), *ys = rows::eights(y);
  uint4* outs    = rows::eights(out);
  const int step = kEach * kThreads;
  for (int first = blockIdx.x * step + threadIdx.x; first < vectors; first += gridDim.x * step) {
    uint4 a[kEach], b[kEach];
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      // Beyond the end the last vector is loaded again: a branch here would keep loads from being issued
      // together.
      const int i = min(first + e * kThreads, vectors - 1);
      a[e]        = rows::load_once(xs + i);
      b[e]        = rows::load_once(ys + i);
    }
#pragma unroll
    for (int e = 0; e < kEach; ++e)
      if (first + e * kThreads < vectors) outs[first + e * kThreads] = sum_of(a[e], b[e]);
  }
  const int last = 8 * vectors + threadIdx.x;
  if (blockIdx.x == 0 && threadIdx.x < rest)
    out[last] = bf16(static_cast<float>(x[last]) + static_cast<float>(y[last]));
}

template <int kEach>
void launch(const Residual& p, StreamRef stream) {
  const int64_t n = p.out.size();
  if (n == 0) return;
  FATHOM_EXPECT(n <= int64_t{1} << 33, "vectors are counted in 31 bits, a step beyond the end included");
  FATHOM_EXPECT(p.warps > 0 && p.warps % (kThreads / 32) == 0, "warps come in whole blocks of four");
  const int blocks = static_cast<int>(p.warps) / (kThreads / 32) * multiprocessors();
  residual_kernel<kEach><<<blocks, kThreads, 0, stream>>>(p.x.data(), p.y.data(), p.out.data(),
                                                          static_cast<int>(n / rows::kEight),
                                                          static_cast<int>(n % rows::kEight));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::bytes_in_flight
