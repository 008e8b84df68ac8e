// out = a b^T                 m x n, k deep, bf16
//
// bytes   2 (m k + n k + m n) at least
// flops   2 m n k
// limit   tensor cores. H200: 989 TFLOP/s at 1.83 GHz. Here L1: the 32 lanes of a warp read 32 rows of b
// idea    baseline: a thread for each element of out walks along its row of a and its row of b
#include <cuda_bf16.h>

#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "rungs.h"

namespace fathom::lab::matmul {
namespace {

constexpr int kWidth = 32, kHeight = 8;

__global__ void __launch_bounds__(kWidth* kHeight)
    naive_kernel(const __nv_bfloat16* a, const __nv_bfloat16* b, bf16* out, int m, int n, int k) {
  const int i = blockIdx.y * kHeight + threadIdx.y, j = blockIdx.x * kWidth + threadIdx.x;
  if (i >= m || j >= n) return;
  float sum = 0;
  for (int l = 0; l < k; ++l)
    sum += __bfloat162float(a[int64_t{i} * k + l]) * __bfloat162float(b[int64_t{j} * k + l]);
  store_bf16(&out[int64_t{i} * n + j], sum);
}

}  // namespace

void naive(const Gemm& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  const dim3 grid(blocks_for(p.n, kWidth), blocks_for(p.m, kHeight));
  naive_kernel<<<grid, dim3(kWidth, kHeight), 0, stream>>>(
      reinterpret_cast<const __nv_bfloat16*>(p.a.data()), reinterpret_cast<const __nv_bfloat16*>(p.b.data()),
      p.out.data(), static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(p.k));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::matmul
