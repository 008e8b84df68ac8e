// out(i, j) = sum_k a(i, k) b(k, j)          n x n, fp32
//
// bytes   12 n^2 at least; 8 n^3 asked of the caches
// flops   2 n^3
// limit   FMA peak. H200: 67 TFLOP/s; n = 4096 is 137 GFLOP, 2.1 ms. Here the L1 cache: two loads for each
//         multiply-add, and a multiprocessor does four warps' multiply-adds in a cycle, but one warp's load
// idea    baseline: a thread for each element. Threads of a warp take neighbouring columns, so that loads of
//         b are coalesced, and loads of a are one word
#include "cuda/check.h"
#include "matmul.h"

namespace fathom::lab::matmul_tiled {
namespace {

constexpr int kColumns = 32, kRows = 8;
constexpr int kThreads = kColumns * kRows;

__global__ void __launch_bounds__(kThreads) matmul_kernel(const float* a, const float* b, float* out, int n) {
  const int i = blockIdx.y * kRows + threadIdx.y, j = blockIdx.x * kColumns + threadIdx.x;
  if (i >= n || j >= n) return;

  float sum = 0;
  for (int k = 0; k < n; ++k) sum += a[int64_t{i} * n + k] * b[int64_t{k} * n + j];
  out[int64_t{i} * n + j] = sum;
}

}  // namespace

void naive(const Matmul& p, StreamRef stream) {
  FATHOM_EXPECT(p.n <= 65535 * kRows, "the grid is too large");
  if (p.n == 0) return;
  const dim3 block(kColumns, kRows);
  const dim3 grid(blocks_for(p.n, kColumns), blocks_for(p.n, kRows));
  matmul_kernel<<<grid, block, 0, stream>>>(p.a.data(), p.b.data(), p.out.data(), static_cast<int>(p.n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::matmul_tiled
