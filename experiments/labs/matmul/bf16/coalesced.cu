// out = a b^T                 m x n, k deep, bf16
//
// bytes   2 (m k + n k + m n) at least
// flops   2 m n k
// limit   tensor cores. H200: 989 TFLOP/s at 1.83 GHz. Here L1: two loads for each multiply-add of two pairs
// idea    a warp for each element of out: its lanes read neighbouring words of a row of a and of b, and add
//         their sums at the end
#include <cuda_bf16.h>

#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "cuda/warp_reduce.cuh"
#include "rungs.h"

namespace fathom::lab::matmul {
namespace {

constexpr int kWidth = 4, kHeight = 8;  // elements of out that a block computes: a warp each

__global__ void __launch_bounds__(32 * kWidth * kHeight)
    coalesced_kernel(const __nv_bfloat162* a, const __nv_bfloat162* b, bf16* out, int m, int n, int pairs) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int i = blockIdx.y * kHeight + warp / kWidth, j = blockIdx.x * kWidth + warp % kWidth;
  if (i >= m || j >= n) return;
  float sum = 0;
  for (int l = lane; l < pairs; l += 32) {
    const float2 x = __bfloat1622float2(a[int64_t{i} * pairs + l]);
    const float2 y = __bfloat1622float2(b[int64_t{j} * pairs + l]);
    sum += x.x * y.x;
    sum += x.y * y.y;
  }
  sum = warp_reduce_sum(sum);
  if (lane == 0) store_bf16(&out[int64_t{i} * n + j], sum);
}

}  // namespace

void coalesced(const Gemm& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  const dim3 grid(blocks_for(p.n, kWidth), blocks_for(p.m, kHeight));
  coalesced_kernel<<<grid, 32 * kWidth * kHeight, 0, stream>>>(
      reinterpret_cast<const __nv_bfloat162*>(p.a.data()),
      reinterpret_cast<const __nv_bfloat162*>(p.b.data()), p.out.data(), static_cast<int>(p.m),
      static_cast<int>(p.n), static_cast<int>(p.k / 2));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::matmul
