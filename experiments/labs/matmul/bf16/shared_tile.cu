// out = a b^T                 m x n, k deep, bf16
//
// bytes   2 (m k + n k + m n) at least; 2 * 2 m n k / 32 asked of L2
// flops   2 m n k
// limit   tensor cores. H200: 989 TFLOP/s at 1.83 GHz. Here shared memory: two reads for each multiply-add
// idea    a block computes 32 x 32 elements from tiles of a and b in shared memory, where each number is read
//         32 times
#include <cuda_bf16.h>

#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "rungs.h"

namespace fathom::lab::matmul {
namespace {

constexpr int kTile = 32;

__global__ void __launch_bounds__(kTile* kTile)
    shared_tile_kernel(const __nv_bfloat16* a, const __nv_bfloat16* b, bf16* out, int m, int n, int k) {
  __shared__ float a_tile[kTile][kTile + 1], b_tile[kTile][kTile + 1];  // a spare column: no bank conflicts

  const int x = threadIdx.x, y = threadIdx.y;
  const int i = blockIdx.y * kTile + y, j = blockIdx.x * kTile + x, b_row = blockIdx.x * kTile + y;
  float sum = 0;
  for (int k0 = 0; k0 < k; k0 += kTile) {
    const bool inside = k0 + x < k;
    a_tile[y][x]      = i < m && inside ? __bfloat162float(a[int64_t{i} * k + k0 + x]) : 0;
    b_tile[y][x]      = b_row < n && inside ? __bfloat162float(b[int64_t{b_row} * k + k0 + x]) : 0;
    __syncthreads();  // both tiles are complete before any thread reads
#pragma unroll
    for (int l = 0; l < kTile; ++l) sum += a_tile[y][l] * b_tile[x][l];
    __syncthreads();  // all threads have read them before the next ones overwrite them
  }
  if (i < m && j < n) store_bf16(&out[int64_t{i} * n + j], sum);
}

}  // namespace

void shared_tile(const Gemm& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  const dim3 grid(blocks_for(p.n, kTile), blocks_for(p.m, kTile));
  shared_tile_kernel<<<grid, dim3(kTile, kTile), 0, stream>>>(
      reinterpret_cast<const __nv_bfloat16*>(p.a.data()), reinterpret_cast<const __nv_bfloat16*>(p.b.data()),
      p.out.data(), static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(p.k));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::matmul
