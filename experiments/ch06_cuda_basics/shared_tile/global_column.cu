// out(i, j) = sum of weight(a, b) in(i + a, j + b) over 5 x 5          n x n, fp32
//
// bytes   8 n^2    4 n^2 read + 4 n^2 written
// flops   50 n^2
// limit   DRAM bandwidth. H200: n = 8192 moves 537 MB
// idea    eight points below each other in each thread: a number is loaded once for all the points of the
//         column, 60 loads for 8 points instead of 200. Still from L1
#include "column.cuh"
#include "cuda/check.h"

namespace fathom::lab::shared_tile {
namespace {

constexpr int kRows    = 8;  // of a thread
constexpr int kWidth   = 64;
constexpr int kColumns = 4;  // threads below each other
constexpr int kHeight  = kColumns * kRows;
constexpr int kThreads = kWidth * kColumns;

__global__ void __launch_bounds__(kThreads)
    stencil_kernel(const float* __restrict__ in, float* __restrict__ out, int n) {
  const int i0 = blockIdx.y * kHeight, j0 = blockIdx.x * kWidth, pitch = n + kRim;
  const int i = i0 + threadIdx.y * kRows, j = j0 + threadIdx.x;
  if (i >= n || j >= n) return;

  float sum[kRows];
  // Rows below the last belong to points outside: any number will do.
  sums_of_column(sum, [&](int r, int b) { return in[min(i + r, pitch - 1) * pitch + j + b]; });
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    if (i + r < n) out[(i + r) * n + j] = sum[r];
}

}  // namespace

void global_column(const Stencil& p, StreamRef stream) {
  const int64_t n = p.out.extent(0);
  FATHOM_EXPECT(p.in.size() <= INT32_MAX, "points are counted in 32 bits");
  if (n == 0) return;
  const dim3 grid(blocks_for(n, kWidth), blocks_for(n, kHeight));
  stencil_kernel<<<grid, dim3(kWidth, kColumns), 0, stream>>>(p.in.data(), p.out.data(), static_cast<int>(n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::shared_tile
