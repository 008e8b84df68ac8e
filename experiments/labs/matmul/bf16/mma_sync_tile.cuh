// What the rungs on mma.sync share: 8 warps multiply a block of 128 x 64 of a with one of b in shared memory.
// Rows are 128 bytes, and 16-byte piece c of row r is at c ^ (r % 8): TMA's 128-byte swizzle. Without it the
// 8 rows that ldmatrix reads at once would lie in the same banks.
#pragma once

#include "cuda/bf16_pack.cuh"
#include "cuda/ptx.cuh"

namespace fathom::lab::matmul {

inline constexpr int kTile = 128, kDepth = 64, kThreads = 256, kBlockBytes = kTile * kDepth * 2;

// Warp w computes rows 64 (w / 4) .. and columns 32 (w % 4) ..: 4 x 4 tiles of m16n8.
using WarpSums = float[4][4][4];

__device__ inline uint32_t swizzled(int row, int piece) { return row * 128 + ((piece ^ (row % 8)) << 4); }

// sums += a b^T for the 64 columns of both. `a` and `b` are shared addresses, multiples of 1024.
__device__ inline void multiply_block(uint32_t a, uint32_t b, WarpSums& sums) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int a_row = warp / 4 * 64 + lane % 16, a_piece = lane / 16;
  const int b_row = warp % 4 * 32 + lane / 16 * 8 + lane % 8, b_piece = lane / 8 % 2;
#pragma unroll
  for (int step = 0; step < kDepth / 16; ++step) {
    uint32_t of_a[4][4], of_b[2][4];  // of_b: two tiles of 8 columns each
#pragma unroll
    for (int i = 0; i < 4; ++i) ptx::ldmatrix_x4(of_a[i], a + swizzled(a_row + 16 * i, a_piece + 2 * step));
#pragma unroll
    for (int j = 0; j < 2; ++j) ptx::ldmatrix_x4(of_b[j], b + swizzled(b_row + 16 * j, b_piece + 2 * step));
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t pair[2] = {of_b[j / 2][j % 2 * 2], of_b[j / 2][j % 2 * 2 + 1]};
        ptx::mma_m16n8k16(sums[i][j], of_a[i], pair);
      }
  }
}

__device__ inline void store_sums(bf16* out, int m, int n, int row, int column, const WarpSums& sums) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = row + warp / 4 * 64 + 16 * i + 8 * half + lane / 4;
        const int c = column + warp % 4 * 32 + 8 * j + lane % 4 * 2;
        if (r < m && c < n)
          *reinterpret_cast<uint32_t*>(&out[int64_t{r} * n + c]) =
              pack_bf16x2(sums[i][j][2 * half], sums[i][j][2 * half + 1]);
      }
}

}  // namespace fathom::lab::matmul
