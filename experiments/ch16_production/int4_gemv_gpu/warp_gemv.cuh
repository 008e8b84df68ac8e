// A warp for each output: its lanes read a row of weights, eight at a time, and x from L1. `Weights` says how
// a row is stored:
//   Weights::Row row(int matrix, int output);    Eight Weights::Row::eight(int v) const   weights 8 v .. 8 v
//   + 8
#pragma once

#include <cuda_bf16.h>

#include "cuda/check.h"
#include "cuda/warp_reduce.cuh"
#include "projection.h"

namespace fathom::lab::int4_gemv_gpu {

struct Eight {
  float at[8];
};

__device__ inline Eight eight_of_bf16(const uint4* from) {
  const uint4 v     = __ldg(from);
  const auto number = [](uint32_t two) {
    return __bfloat1622float2(*reinterpret_cast<__nv_bfloat162*>(&two));
  };
  const float2 a = number(v.x), b = number(v.y), c = number(v.z), d = number(v.w);
  return {a.x, a.y, b.x, b.y, c.x, c.y, d.x, d.y};
}

inline constexpr int kWarps = 8;  // outputs of a CTA

// kRows rows of x at a time. Grid: (groups of kWarps outputs, matrices).
template <int kRows, class Weights>
__global__ void __launch_bounds__(32 * kWarps)
    warp_gemv_kernel(View<const bf16, 3> x, Weights weights, View<float, 3> out) {
  const int lane = threadIdx.x, output = blockIdx.x * kWarps + threadIdx.y, matrix = blockIdx.y;
  if (output >= out.extent(2)) return;
  const int rows = static_cast<int>(x.extent(1)), vectors = static_cast<int>(x.extent(2)) / 8;
  const auto row       = weights.row(matrix, output);
  const auto* of_x     = reinterpret_cast<const uint4*>(&x(matrix, 0, 0));
  float sum[kRows]     = {};
  constexpr int kAhead = kRows > 4 ? 2 : 4;  // vectors of weights in flight
#pragma unroll kAhead
  for (int v = lane; v < vectors; v += 32) {
    const Eight w = row.eight(v);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const Eight of_row = eight_of_bf16(of_x + min(r, rows - 1) * vectors + v);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[r] += w.at[i] * of_row.at[i];
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float total = warp_reduce_sum(sum[r]);
    if (lane == 0 && r < rows) out(matrix, r, output) = total;
  }
}

template <class Weights>
void launch_warp_gemv(const Projection& p, const Weights& weights, StreamRef stream) {
  if (p.out.size() == 0) return;
  FATHOM_EXPECT(p.rows <= 8 && p.weights.matrices <= 65535, "at most 8 rows");
  auto* const kernel = p.rows == 1   ? warp_gemv_kernel<1, Weights>
                       : p.rows <= 4 ? warp_gemv_kernel<4, Weights>
                                     : warp_gemv_kernel<8, Weights>;
  const dim3 grid(blocks_for(p.weights.outputs, kWarps), static_cast<unsigned>(p.weights.matrices));
  kernel<<<grid, dim3(32, kWarps), 0, stream>>>(p.x, weights, p.out);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::int4_gemv_gpu
