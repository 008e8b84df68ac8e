// out = a b^T                 m x n, k deep, bf16
//
// bytes   2 (m k + n k + m n) at least
// flops   2 m n k
// limit   tensor cores. H200: 989 TFLOP/s at 1.83 GHz; mma.sync alone reaches about two thirds of what wgmma
//         does
// idea    TMA copies: one thread asks for a block by its coordinates, the hardware computes addresses,
//         swizzles and fills in zeros outside. An mbarrier a stage counts the bytes
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/tensor_map.h"
#include "mma_sync_tile.cuh"
#include "rungs.h"

namespace fathom::lab::matmul {
namespace {

constexpr int kStages = 3, kSharedBytes = kStages * 2 * kBlockBytes;  // two CTAs on a multiprocessor

__global__ void __launch_bounds__(kThreads, 2)
    tma_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, bf16* out, int m,
               int n, int blocks) {
  extern __shared__ __align__(1024) uint8_t stages[];
  __shared__ uint64_t full[kStages];
  const int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  const auto copy = [&](int block) {
    uint8_t* const to       = stages + block % kStages * 2 * kBlockBytes;
    uint64_t* const barrier = &full[block % kStages];
    ptx::mbarrier_arrive_expect_tx(barrier, 2 * kBlockBytes);
    ptx::cp_async_bulk_tensor_load(to, &a, row, block * kDepth, barrier);
    ptx::cp_async_bulk_tensor_load(to + kBlockBytes, &b, column, block * kDepth, barrier);
  };
  if (threadIdx.x == 0) {
    for (uint64_t& barrier : full) ptx::mbarrier_init(&barrier, 1);
    ptx::fence_mbarrier_init();
    for (int block = 0; block < min(kStages - 1, blocks); ++block) copy(block);
  }
  __syncthreads();  // the barriers are there before any thread waits for one

  WarpSums sums = {};
  for (int block = 0; block < blocks; ++block) {
    ptx::mbarrier_wait(&full[block % kStages], block / kStages & 1);
    __syncthreads();  // all threads have read the block before, whose stage is filled next
    if (threadIdx.x == 0 && block + kStages - 1 < blocks) copy(block + kStages - 1);
    const uint32_t at = ptx::shared_address(stages) + block % kStages * 2 * kBlockBytes;
    multiply_block(at, at + kBlockBytes, sums);
  }
  store_sums(out, m, n, row, column, sums);
}

}  // namespace

void tma(const Gemm& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  allow_shared_memory_once<tma_kernel>(kSharedBytes);
  const dim3 grid(blocks_for(p.n, kTile), blocks_for(p.m, kTile));
  tma_kernel<<<grid, kThreads, kSharedBytes, stream>>>(
      tensor_map(p.a.data(), DType::bf16, p.m, p.k, 2 * p.k, kTile, kDepth, Swizzle::bytes_128),
      tensor_map(p.b.data(), DType::bf16, p.n, p.k, 2 * p.k, kTile, kDepth, Swizzle::bytes_128), p.out.data(),
      static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(blocks_for(p.k, kDepth)));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::matmul
