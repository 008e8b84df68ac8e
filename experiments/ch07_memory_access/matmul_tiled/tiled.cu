// out(i, j) = sum_k a(i, k) b(k, j)          n x n, fp32
//
// bytes   12 n^2 at least; 8 n^3 / 32 asked of the L2 cache
// flops   2 n^3
// limit   FMA peak. H200: 67 TFLOP/s; n = 4096 is 137 GFLOP, 2.1 ms. Here shared memory, which serves a
//         multiprocessor one read of a warp in a cycle: four multiply-adds, a cycle's work too, need four
//         words of b's tile and, as one vector, four of a's. A fifth of the peak at best
// idea    a block computes 32 x 32 elements. It takes a tile of a and one of b into shared memory, where each
//         word is read 32 times, and goes on with the next: a thirty-second of the global loads
#include "cuda/check.h"
#include "matmul.h"

namespace fathom::lab::matmul_tiled {
namespace {

constexpr int kTile    = 32;
constexpr int kThreads = kTile * kTile;

__global__ void __launch_bounds__(kThreads) matmul_kernel(const float* a, const float* b, float* out, int n) {
  __shared__ alignas(16) float a_tile[kTile][kTile];  // rows are read by vectors, all lanes the same
  __shared__ float b_tile[kTile][kTile];

  const int i = blockIdx.y * kTile + threadIdx.y, j = blockIdx.x * kTile + threadIdx.x;

  float sum = 0;
  for (int k0 = 0; k0 < n; k0 += kTile) {
    const int a_column = k0 + threadIdx.x, b_row = k0 + threadIdx.y;
    a_tile[threadIdx.y][threadIdx.x] = i < n && a_column < n ? a[int64_t{i} * n + a_column] : 0;
    b_tile[threadIdx.y][threadIdx.x] = b_row < n && j < n ? b[int64_t{b_row} * n + j] : 0;
    __syncthreads();  // both tiles are complete before any thread reads

#pragma unroll
    for (int k = 0; k < kTile; ++k) sum += a_tile[threadIdx.y][k] * b_tile[k][threadIdx.x];
    __syncthreads();  // all threads have read them before the next ones overwrite them
  }
  if (i < n && j < n) out[int64_t{i} * n + j] = sum;
}

}  // namespace

void tiled(const Matmul& p, StreamRef stream) {
  FATHOM_EXPECT(p.n <= 65535 * kTile, "the grid is too large");
  if (p.n == 0) return;
  const dim3 block(kTile, kTile);
  const dim3 grid(blocks_for(p.n, kTile), blocks_for(p.n, kTile));
  matmul_kernel<<<grid, block, 0, stream>>>(p.a.data(), p.b.data(), p.out.data(), static_cast<int>(p.n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::matmul_tiled
