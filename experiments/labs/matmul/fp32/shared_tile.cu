// out = a b^T                 m x n, k deep, fp32
//
// bytes   4 (m k + n k + m n) at least; 2 * 4 m n k / 32 asked of L2
// flops   2 m n k
// limit   FMA of the CUDA cores. H200: 67 TFLOP/s at 1.98 GHz. Here shared memory: two reads for each
//         multiply-add
// idea    baseline: a block computes 32 x 32 elements from tiles of a and b in shared memory, where
//         each number is read 32 times
#include "cuda/check.h"
#include "rungs.h"

namespace fathom::lab::matmul {
namespace {

constexpr int kTile = 32;

__global__ void __launch_bounds__(kTile* kTile)
    shared_tile_kernel(const float* a, const float* b, float* out, int m, int n, int k) {
  __shared__ float a_tile[kTile][kTile + 1], b_tile[kTile][kTile + 1];  // a spare column: no bank conflicts

  const int x = threadIdx.x, y = threadIdx.y;
  const int i = blockIdx.y * kTile + y, j = blockIdx.x * kTile + x, b_row = blockIdx.x * kTile + y;
  float sum = 0;
  for (int k0 = 0; k0 < k; k0 += kTile) {
    const bool inside = k0 + x < k;
    a_tile[y][x]      = i < m && inside ? a[int64_t{i} * k + k0 + x] : 0;
    b_tile[y][x]      = b_row < n && inside ? b[int64_t{b_row} * k + k0 + x] : 0;
    __syncthreads();  // both tiles are complete before any thread reads
#pragma unroll
    for (int l = 0; l < kTile; ++l) sum += a_tile[y][l] * b_tile[x][l];
    __syncthreads();  // all threads have read them before the next ones overwrite them
  }
  if (i < m && j < n) out[int64_t{i} * n + j] = sum;
}

}  // namespace

void fp32_shared_tile(const GemmFp32& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  const dim3 grid(blocks_for(p.n, kTile), blocks_for(p.m, kTile));
  shared_tile_kernel<<<grid, dim3(kTile, kTile), 0, stream>>>(p.a.data(), p.b.data(), p.out.data(),
                                                              static_cast<int>(p.m), static_cast<int>(p.n),
                                                              static_cast<int>(p.k));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::matmul
