// What the rungs on wgmma share: a warpgroup multiplies 64 rows of a block of a with a block of b, both 64
// deep, in shared memory with the 128-byte swizzle, and stores its sums.
#pragma once

#include "cuda/bf16_pack.cuh"
#include "cuda/ptx.cuh"
#include "cuda/wgmma.cuh"

namespace fathom::lab::matmul {

inline constexpr int kDepth = 64;  // 128 bytes: the span of the swizzle

// Starts sums (+)= a b^T; `a` and `b` are descriptors of the first 16 columns of the blocks.
template <int kSums>
__device__ inline void start_products(uint64_t a, uint64_t b, float (&sums)[kSums], bool add) {
  ptx::warpgroup_fence_operand(sums);
  ptx::wgmma_fence();
#pragma unroll
  for (int s = 0; s < kDepth / 16; ++s)
    ptx::wgmma(sums, ptx::advance_descriptor(a, 32 * s), ptx::advance_descriptor(b, 32 * s), add || s > 0);
  ptx::wgmma_commit_group();
  ptx::warpgroup_fence_operand(sums);
}

// From registers to global memory: pairs of columns, n is even.
template <int kSums>
__device__ inline void store_sums(bf16* out, int m, int n, int row, int column, const float (&sums)[kSums]) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < kSums / 4; ++j)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row + 16 * warp + 8 * half + lane / 4, c = column + 8 * j + lane % 4 * 2;
      if (r < m && c < n)
        *reinterpret_cast<uint32_t*>(&out[int64_t{r} * n + c]) =
            pack_bf16x2(sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1]);
    }
}

}  // namespace fathom::lab::matmul
