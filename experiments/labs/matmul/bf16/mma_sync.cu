// out = a b^T                 m x n, k deep, bf16
//
// bytes   2 (m k + n k + m n) at least
// flops   2 m n k
// limit   tensor cores. H200: 989 TFLOP/s at 1.83 GHz; mma.sync alone reaches about two thirds of what wgmma
//         does
// idea    the tensor cores multiply: mma.sync m16n8k16, operands by ldmatrix from tiles that are swizzled
#include "cuda/check.h"
#include "mma_sync_tile.cuh"
#include "rungs.h"

namespace fathom::lab::matmul {
namespace {

__device__ void load_block(const bf16* from, int first_row, int rows, int k0, int k, uint8_t* to) {
#pragma unroll
  for (int u = 0; u < kTile * 8 / kThreads; ++u) {
    const int row = (u * kThreads + threadIdx.x) / 8, piece = threadIdx.x % 8, at = k0 + 8 * piece;
    const bool inside = first_row + row < rows && at < k;
    *reinterpret_cast<uint4*>(to + swizzled(row, piece)) =
        inside ? *reinterpret_cast<const uint4*>(from + int64_t{first_row + row} * k + at) : uint4{};
  }
}

__global__ void __launch_bounds__(kThreads, 2)
    mma_sync_kernel(const bf16* a, const bf16* b, bf16* out, int m, int n, int k) {
  __shared__ alignas(1024) uint8_t a_block[kBlockBytes], b_block[kBlockBytes];
  const int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  WarpSums sums = {};
  for (int k0 = 0; k0 < k; k0 += kDepth) {
    load_block(a, row, m, k0, k, a_block);
    load_block(b, column, n, k0, k, b_block);
    __syncthreads();  // both blocks are complete before any thread reads
    multiply_block(ptx::shared_address(a_block), ptx::shared_address(b_block), sums);
    __syncthreads();  // all threads have read them before the next ones overwrite them
  }
  store_sums(out, m, n, row, column, sums);
}

}  // namespace

void mma_sync(const Gemm& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  const dim3 grid(blocks_for(p.n, kTile), blocks_for(p.m, kTile));
  mma_sync_kernel<<<grid, kThreads, 0, stream>>>(p.a.data(), p.b.data(), p.out.data(), static_cast<int>(p.m),
                                                 static_cast<int>(p.n), static_cast<int>(p.k));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::matmul
