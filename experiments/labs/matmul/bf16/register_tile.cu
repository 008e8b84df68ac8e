// out = a b^T                 m x n, k deep, bf16
//
// bytes   2 (m k + n k + m n) at least
// flops   2 m n k
// limit   tensor cores. H200: 989 TFLOP/s at 1.83 GHz. Here the FMA peak, 67 TFLOP/s: 16 reads of shared
//         memory make 64 multiply-adds
// idea    a thread computes 8 x 8 elements in registers; a block 128 x 128
#include <cuda_bf16.h>

#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "rungs.h"

namespace fathom::lab::matmul {
namespace {

constexpr int kTile = 128, kDepth = 16, kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    register_tile_kernel(const __nv_bfloat16* a, const __nv_bfloat16* b, bf16* out, int m, int n, int k) {
  // Transposed, so that the 16 threads of a row read neighbouring words. 4 spare words: fewer bank conflicts
  // where a column is written.
  __shared__ float a_tile[kDepth][kTile + 4], b_tile[kDepth][kTile + 4];

  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  const int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  float sums[8][8] = {};
  for (int k0 = 0; k0 < k; k0 += kDepth) {
#pragma unroll
    for (int u = 0; u < kTile / 16; ++u) {
      const int r       = u * 16 + y;
      const bool inside = k0 + x < k;
      a_tile[x][r]      = inside && row + r < m ? __bfloat162float(a[int64_t{row + r} * k + k0 + x]) : 0;
      b_tile[x][r] = inside && column + r < n ? __bfloat162float(b[int64_t{column + r} * k + k0 + x]) : 0;
    }
    __syncthreads();  // both tiles are complete before any thread reads
#pragma unroll
    for (int l = 0; l < kDepth; ++l) {
      float of_a[8], of_b[8];
#pragma unroll
      for (int u = 0; u < 8; ++u) of_a[u] = a_tile[l][u * 16 + y], of_b[u] = b_tile[l][u * 16 + x];
#pragma unroll
      for (int u = 0; u < 8; ++u)
#pragma unroll
        for (int v = 0; v < 8; ++v) sums[u][v] += of_a[u] * of_b[v];
    }
    __syncthreads();  // all threads have read them before the next ones overwrite them
  }
#pragma unroll
  for (int u = 0; u < 8; ++u)
#pragma unroll
    for (int v = 0; v < 8; ++v)
      if (const int i = row + u * 16 + y, j = column + v * 16 + x; i < m && j < n)
        store_bf16(&out[int64_t{i} * n + j], sums[u][v]);
}

}  // namespace

void register_tile(const Gemm& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  const dim3 grid(blocks_for(p.n, kTile), blocks_for(p.m, kTile));
  register_tile_kernel<<<grid, kThreads, 0, stream>>>(
      reinterpret_cast<const __nv_bfloat16*>(p.a.data()), reinterpret_cast<const __nv_bfloat16*>(p.b.data()),
      p.out.data(), static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(p.k));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::matmul
