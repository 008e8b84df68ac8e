// out(j, i) = in(i, j)                       n x n, fp32
//
// bytes   8 n^2    4 n^2 read + 4 n^2 written
// flops   0
// limit   DRAM bandwidth. H200: n = 16384 moves 2.15 GB, 0.54 ms at 3.98 TB/s
// idea    through a tile in shared memory: rows are read, and rows are written. Its columns are read by a
//         warp at once, and word (row, column) lies in bank 32 row + column mod 32 = column: one bank, 32
//         cycles
#include "cuda/check.h"
#include "transpose.h"

namespace fathom::lab::transpose_gpu {
namespace {

constexpr int kTile    = 32;  // one warp wide
constexpr int kRows    = 8;   // 32 x 8 threads, four rows each
constexpr int kThreads = kTile * kRows;

__global__ void __launch_bounds__(kThreads)
    transpose_kernel(const float* __restrict__ in, float* __restrict__ out, int n) {
  __shared__ float tile[kTile][kTile];
  const int i0 = blockIdx.y * kTile, j0 = blockIdx.x * kTile;
  const int lane = threadIdx.x;

#pragma unroll
  for (int k = 0; k < kTile; k += kRows) {
    const int row = k + threadIdx.y;
    if (i0 + row < n && j0 + lane < n) tile[row][lane] = in[(i0 + row) * n + j0 + lane];
  }
  __syncthreads();  // the tile is complete before other warps read its columns
#pragma unroll
  for (int k = 0; k < kTile; k += kRows) {
    const int row = k + threadIdx.y;
    if (j0 + row < n && i0 + lane < n) out[(j0 + row) * n + i0 + lane] = tile[lane][row];
  }
}

}  // namespace

void tile(const Transpose& p, StreamRef stream) {
  const int n = static_cast<int>(p.in.extent(0));
  if (n == 0) return;
  const unsigned tiles = blocks_for(n, kTile);
  transpose_kernel<<<dim3(tiles, tiles), dim3(kTile, kRows), 0, stream>>>(p.in.data(), p.out.data(), n);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::transpose_gpu
