// out = a b^T                 m x n, k deep, bf16
//
// bytes   2 (m k + n k + m n) at least
// flops   2 m n k
// limit   tensor cores. H200: 989 TFLOP/s at 1.83 GHz. Here the FMA peak, 67 TFLOP/s
// idea    as register_tile, in vectors: 8 bf16 of a row are one load, and a thread's 8 x 8 elements are four
//         blocks of 4 x 4, whose operands are one read of shared memory each
#include <cuda_bf16.h>

#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "cuda_core_tile.cuh"
#include "rungs.h"

namespace fathom::lab::matmul {
namespace {

constexpr int kTile = 128, kDepth = 16, kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    vectors_kernel(const __nv_bfloat16* a, const __nv_bfloat16* b, bf16* out, int m, int n, int k) {
  __shared__ alignas(16) float a_tile[kDepth][kTile + 4], b_tile[kDepth][kTile + 4];

  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  const int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  float sums[8][8] = {};
  for (int k0 = 0; k0 < k; k0 += kDepth) {
    load_transposed(a, row, m, k0, k, a_tile);
    load_transposed(b, column, n, k0, k, b_tile);
    __syncthreads();  // both tiles are complete before any thread reads
#pragma unroll
    for (int l = 0; l < kDepth; ++l) multiply_add(&a_tile[l][4 * y], &b_tile[l][4 * x], sums);
    __syncthreads();  // all threads have read them before the next ones overwrite them
  }
  store_blocks(out, m, n, row + 4 * y, column + 4 * x, sums);
}

}  // namespace

void vectors(const Gemm& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  const dim3 grid(blocks_for(p.n, kTile), blocks_for(p.m, kTile));
  vectors_kernel<<<grid, kThreads, 0, stream>>>(
      reinterpret_cast<const __nv_bfloat16*>(p.a.data()), reinterpret_cast<const __nv_bfloat16*>(p.b.data()),
      p.out.data(), static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(p.k));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::matmul
