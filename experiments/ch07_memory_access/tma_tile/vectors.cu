// out(i, j) = in(i, j) inside of in, 0 around it     fp32, out in whole tiles of 128 x 128
//
// bytes   4 rows columns read + 4 bytes for each element of out written
// flops   0
// limit   DRAM bandwidth. H200: 16632 x 16632 moves 2.21 GB, 0.56 ms at 3.98 TB/s
// idea    baseline: a warp takes 128 columns of a row, a vector of 16 bytes for each lane, and a thread has
//         four rows in flight before its first store. Each vector is checked against the bounds
#include "cuda/check.h"
#include "pad.h"

namespace fathom::lab::tma_tile {
namespace {

constexpr int kWarps   = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kEach    = 4;  // rows of a warp, kWarps apart
constexpr int kRows    = kWarps * kEach;
static_assert(Pad::kTile == 4 * 32 && Pad::kTile % kRows == 0);

// in(i, j .. j + 3), zeros outside.
__device__ float4 load_vector(const View<const float, 2>& in, int i, int j) {
  const int rows = static_cast<int>(in.extent(0)), columns = static_cast<int>(in.extent(1));
  if (i >= rows || j >= columns) return {};
  const float* from = in.data() + i * in.stride(0) + j;
  if (j + 4 <= columns) return *reinterpret_cast<const float4*>(from);
  return {from[0], j + 1 < columns ? from[1] : 0, j + 2 < columns ? from[2] : 0, 0};
}

__global__ void __launch_bounds__(kThreads) pad_kernel(View<const float, 2> in, View<float, 2> out) {
  const int i = blockIdx.y * kRows + threadIdx.y, j = blockIdx.x * Pad::kTile + 4 * threadIdx.x;

  float4 v[kEach];
#pragma unroll
  for (int e = 0; e < kEach; ++e) v[e] = load_vector(in, i + e * kWarps, j);
#pragma unroll
  for (int e = 0; e < kEach; ++e)
    *reinterpret_cast<float4*>(out.data() + (i + e * kWarps) * out.stride(0) + j) = v[e];
}

}  // namespace

void vectors(const Pad& p, StreamRef stream) {
  FATHOM_EXPECT(p.out.extent(0) <= 65535 * kRows && p.out.extent(1) <= INT32_MAX, "the grid is too large");
  if (p.out.size() == 0) return;
  const dim3 block(32, kWarps);
  const dim3 grid(blocks_for(p.out.extent(1), Pad::kTile), blocks_for(p.out.extent(0), kRows));
  pad_kernel<<<grid, block, 0, stream>>>(p.in, p.out);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::tma_tile
