// out(i, j) = sum of weight(a, b) in(i + a, j + b) over 5 x 5          n x n, fp32
//
// bytes   8 n^2    4 n^2 read + 4 n^2 written
// flops   50 n^2
// limit   DRAM bandwidth. H200: n = 8192 moves 537 MB
// idea    the block first brings its 32 x 32 points and their rim to shared memory; the 25 loads go there. A
//         warp's 32 words lie in 32 banks wherever they begin: one cycle each, no lines to straddle
#include "cuda/check.h"
#include "load_tile.cuh"

namespace fathom::lab::shared_tile {
namespace {

constexpr int kWidth   = 32;
constexpr int kHeight  = 32;
constexpr int kThreads = kWidth * kHeight;

__global__ void __launch_bounds__(kThreads)
    stencil_kernel(const float* __restrict__ in, float* __restrict__ out, int n) {
  __shared__ float tile[kHeight + kRim][kWidth + kRim];

  const int i0 = blockIdx.y * kHeight, j0 = blockIdx.x * kWidth;
  load_tile<kWidth, kHeight, kHeight>(tile, in, n + kRim, i0, j0);
  __syncthreads();  // the tile is complete before any thread reads from it

  const int i = i0 + threadIdx.y, j = j0 + threadIdx.x;
  if (i >= n || j >= n) return;

  float sum = 0;
#pragma unroll
  for (int a = 0; a < kTaps; ++a)
#pragma unroll
    for (int b = 0; b < kTaps; ++b) sum = fmaf(weight(a, b), tile[threadIdx.y + a][threadIdx.x + b], sum);
  out[i * n + j] = sum;
}

}  // namespace

void tile(const Stencil& p, StreamRef stream) {
  const int64_t n = p.out.extent(0);
  FATHOM_EXPECT(p.in.size() <= INT32_MAX, "points are counted in 32 bits");
  if (n == 0) return;
  const dim3 grid(blocks_for(n, kWidth), blocks_for(n, kHeight));
  stencil_kernel<<<grid, dim3(kWidth, kHeight), 0, stream>>>(p.in.data(), p.out.data(), static_cast<int>(n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::shared_tile
