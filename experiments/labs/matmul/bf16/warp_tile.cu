// out = a b^T                 m x n, k deep, bf16
//
// bytes   2 (m k + n k + m n) at least
// flops   2 m n k
// limit   tensor cores. H200: 989 TFLOP/s at 1.83 GHz. Here the FMA peak, 67 TFLOP/s
// idea    one more level of tiles: a warp computes 64 x 32 elements, not a stripe of 8 x 128. Its lanes then
//         read 8 vectors of a and 4 of b at each step, one access of shared memory each, where a stripe needs
//         three. The next tiles are loaded into registers while these are multiplied
#include <cuda_bf16.h>

#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "cuda_core_tile.cuh"
#include "rungs.h"

namespace fathom::lab::matmul {
namespace {

constexpr int kTile = 128, kDepth = 16, kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    warp_tile_kernel(const __nv_bfloat16* a, const __nv_bfloat16* b, bf16* out, int m, int n, int k) {
  __shared__ alignas(16) float a_tile[2][kDepth][kTile + 4], b_tile[2][kDepth][kTile + 4];

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // The four 4 x 4 blocks of a thread are 32 rows and 16 columns apart.
  const int y = warp / 4 * 64 + lane / 4 * 4, x = warp % 4 * 32 + lane % 4 * 4;
  const int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  float sums[8][8] = {};
  load_transposed(a, row, m, 0, k, a_tile[0]);
  load_transposed(b, column, n, 0, k, b_tile[0]);
  __syncthreads();  // the first tiles are complete
  for (int k0 = 0, now = 0; k0 < k; k0 += kDepth, now ^= 1) {
    const uint4 next_a = load_vector(a, row, m, k0 + kDepth, k);
    const uint4 next_b = load_vector(b, column, n, k0 + kDepth, k);
#pragma unroll
    for (int l = 0; l < kDepth; ++l) multiply_add<32, 16>(&a_tile[now][l][y], &b_tile[now][l][x], sums);
    store_transposed(next_a, a_tile[now ^ 1]);
    store_transposed(next_b, b_tile[now ^ 1]);
    __syncthreads();  // the next tiles are complete, and all threads have read these
  }
  store_blocks<32, 16>(out, m, n, row + y, column + x, sums);
}

}  // namespace

void warp_tile(const Gemm& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  const dim3 grid(blocks_for(p.n, kTile), blocks_for(p.m, kTile));
  warp_tile_kernel<<<grid, kThreads, 0, stream>>>(
      reinterpret_cast<const __nv_bfloat16*>(p.a.data()), reinterpret_cast<const __nv_bfloat16*>(p.b.data()),
      p.out.data(), static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(p.k));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::matmul
