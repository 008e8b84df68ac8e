// out(m, t, n) = sum_k x(m, t, k) w(m, n, k)      bf16, sums in fp32
//
// bytes   2 M N K of weights. Eight rows of x at a time, so 64 rows read the weights eight times; all but the
//         first time from L2, because consecutive CTAs do so
// flops   2 M T N K, by the CUDA cores
// limit   memory bandwidth. H200: 118 MB, 4 matrices of 5120 x 2880, are 26 us at 4.55 TB/s
// idea    none yet: a warp for each output; its lanes read a row of W, 16 bytes each, and x from L1
#include <cuda_bf16.h>

#include "cuda/check.h"
#include "cuda/warp_reduce.cuh"
#include "projection.h"

namespace fathom::lab::decode_gemv {
namespace {

constexpr int kWarps = 8;  // outputs of a CTA

struct Eight {
  float at[8];
};

__device__ Eight eight(const uint4* from) {
  const uint4 v     = __ldg(from);
  const auto number = [](uint32_t two) {
    return __bfloat1622float2(*reinterpret_cast<__nv_bfloat162*>(&two));
  };
  const float2 a = number(v.x), b = number(v.y), c = number(v.z), d = number(v.w);
  return {a.x, a.y, b.x, b.y, c.x, c.y, d.x, d.y};
}

// kRows rows of x at a time. Grid: (groups of rows, groups of kWarps outputs, matrices).
template <int kRows>
__global__ void __launch_bounds__(32 * kWarps)
    product_kernel(View<const bf16, 3> x, View<const bf16, 3> w, View<float, 3> out) {
  const int lane = threadIdx.x, output = blockIdx.y * kWarps + threadIdx.y, matrix = blockIdx.z;
  if (output >= w.extent(1)) return;
  const int rows = static_cast<int>(x.extent(1)), vectors = static_cast<int>(x.extent(2)) / 8;
  const int first      = blockIdx.x * kRows;
  const auto* of_w     = reinterpret_cast<const uint4*>(&w(matrix, output, 0));
  const auto* of_x     = reinterpret_cast<const uint4*>(&x(matrix, first, 0));
  float sum[kRows]     = {};
  constexpr int kAhead = kRows > 4 ? 2 : 4;  // vectors of w in flight
#pragma unroll kAhead
  for (int v = lane; v < vectors; v += 32) {
    const Eight weights = eight(of_w + v);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const Eight row = eight(of_x + min(r, rows - 1 - first) * vectors + v);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[r] += weights.at[i] * row.at[i];
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float total = warp_reduce_sum(sum[r]);
    if (lane == 0 && first + r < rows) out(matrix, first + r, output) = total;
  }
}

template <int kRows>
void launch(const Projection& p, StreamRef stream) {
  const dim3 grid(blocks_for(p.rows, kRows), blocks_for(p.outputs, kWarps),
                  static_cast<unsigned>(p.matrices));
  product_kernel<kRows><<<grid, dim3(32, kWarps), 0, stream>>>(p.x, p.w, p.out);
  FATHOM_LAUNCHED();
}

}  // namespace

void warp_per_output(const Projection& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  FATHOM_EXPECT(p.outputs <= 65535 * kWarps && p.matrices <= 65535, "the grid is too large");
  if (p.rows == 1) return launch<1>(p, stream);
  if (p.rows <= 4) return launch<4>(p, stream);
  launch<8>(p, stream);
}

}  // namespace fathom::lab::decode_gemv
