// out(i, j) = sum of weight(a, b) in(i + a, j + b) over 5 x 5          n x n, fp32
//
// bytes   8 n^2    4 n^2 read + 4 n^2 written
// flops   50 n^2
// limit   DRAM bandwidth. H200: n = 8192 moves 537 MB
// idea    baseline: a point a thread, 25 loads each. DRAM sees every number once, since the 24 other times it
//         is in L1; but L1 answers one warp in a cycle at best, two where 32 numbers straddle a line
#include "cuda/check.h"
#include "stencil.h"

namespace fathom::lab::shared_tile {
namespace {

constexpr int kWidth   = 32;
constexpr int kHeight  = 8;
constexpr int kThreads = kWidth * kHeight;

__global__ void __launch_bounds__(kThreads)
    stencil_kernel(const float* __restrict__ in, float* __restrict__ out, int n) {
  const int i = blockIdx.y * kHeight + threadIdx.y, j = blockIdx.x * kWidth + threadIdx.x;
  if (i >= n || j >= n) return;
  const float* corner = in + i * (n + kRim) + j;

  float sum = 0;
#pragma unroll
  for (int a = 0; a < kTaps; ++a)
#pragma unroll
    for (int b = 0; b < kTaps; ++b) sum = fmaf(weight(a, b), corner[a * (n + kRim) + b], sum);
  out[i * n + j] = sum;
}

}  // namespace

void global(const Stencil& p, StreamRef stream) {
  const int64_t n = p.out.extent(0);
  FATHOM_EXPECT(p.in.size() <= INT32_MAX, "points are counted in 32 bits");
  if (n == 0) return;
  const dim3 grid(blocks_for(n, kWidth), blocks_for(n, kHeight));
  stencil_kernel<<<grid, dim3(kWidth, kHeight), 0, stream>>>(p.in.data(), p.out.data(), static_cast<int>(n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::shared_tile
