// out = a b^T                 m x n, k deep, bf16
//
// bytes   2 (m k + n k + m n) at least
// flops   2 m n k
// limit   tensor cores. H200: 989 TFLOP/s at 1.83 GHz; mma.sync alone reaches about two thirds of what wgmma
//         does
// idea    cp.async copies to shared memory without passing registers, two blocks ahead of the product
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "mma_sync_tile.cuh"
#include "rungs.h"

namespace fathom::lab::matmul {
namespace {

constexpr int kStages = 3, kSharedBytes = kStages * 2 * kBlockBytes;  // two CTAs on a multiprocessor

__device__ void copy_block(const bf16* from, int first_row, int rows, int k0, int k, uint8_t* to) {
#pragma unroll
  for (int u = 0; u < kTile * 8 / kThreads; ++u) {
    const int row = (u * kThreads + threadIdx.x) / 8, piece = threadIdx.x % 8, at = k0 + 8 * piece;
    const bool inside = first_row + row < rows && at < k;
    ptx::cp_async_cg(to + swizzled(row, piece), inside ? from + int64_t{first_row + row} * k + at : from,
                     inside ? 16 : 0);
  }
}

__global__ void __launch_bounds__(kThreads, 2)
    cp_async_kernel(const bf16* a, const bf16* b, bf16* out, int m, int n, int k) {
  extern __shared__ __align__(1024) uint8_t stages[];
  const int row = blockIdx.y * kTile, column = blockIdx.x * kTile, blocks = (k + kDepth - 1) / kDepth;
  // Commits a group even without a block, so that groups count blocks.
  const auto copy = [&](int block) {
    uint8_t* const to = stages + block % kStages * 2 * kBlockBytes;
    if (block < blocks) {
      copy_block(a, row, m, block * kDepth, k, to);
      copy_block(b, column, n, block * kDepth, k, to + kBlockBytes);
    }
    ptx::cp_async_commit_group();
  };
  for (int block = 0; block < kStages - 1; ++block) copy(block);

  WarpSums sums = {};
  for (int block = 0; block < blocks; ++block) {
    ptx::cp_async_wait_group<kStages - 2>();  // this thread's part of the block has arrived
    // All parts have, and all threads have read the block before, whose stage is filled next.
    __syncthreads();
    copy(block + kStages - 1);
    const uint32_t at = ptx::shared_address(stages) + block % kStages * 2 * kBlockBytes;
    multiply_block(at, at + kBlockBytes, sums);
  }
  store_sums(out, m, n, row, column, sums);
}

}  // namespace

void cp_async(const Gemm& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  allow_shared_memory_once<cp_async_kernel>(kSharedBytes);
  const dim3 grid(blocks_for(p.n, kTile), blocks_for(p.m, kTile));
  cp_async_kernel<<<grid, kThreads, kSharedBytes, stream>>>(p.a.data(), p.b.data(), p.out.data(),
                                                            static_cast<int>(p.m), static_cast<int>(p.n),
                                                            static_cast<int>(p.k));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::matmul
