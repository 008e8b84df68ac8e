// out = a b^T                 m x n, k deep, bf16
//
// bytes   2 (m k + n k + m n) at least
// flops   2 m n k
// limit   tensor cores. H200: 989 TFLOP/s at 1.83 GHz
// idea    two warpgroups multiply, 64 x 128 elements each: the tensor cores read both operands from shared
//         memory, so that no thread loads fragments
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/tensor_map.h"
#include "rungs.h"
#include "wgmma_tile.cuh"

namespace fathom::lab::matmul {
namespace {

constexpr int kTileM = 128, kTileN = 128, kThreads = 256;
constexpr int kABytes = kTileM * kDepth * 2, kBBytes = kTileN * kDepth * 2, kStageBytes = kABytes + kBBytes;
constexpr int kStages = 3, kSharedBytes = kStages * kStageBytes;  // two CTAs on a multiprocessor

__global__ void __launch_bounds__(kThreads, 2)
    wgmma_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, bf16* out,
                 int m, int n, int blocks) {
  extern __shared__ __align__(1024) uint8_t stages[];
  __shared__ uint64_t full[kStages];
  const int row = blockIdx.y * kTileM, column = blockIdx.x * kTileN;
  const auto copy = [&](int block) {
    uint8_t* const to       = stages + block % kStages * kStageBytes;
    uint64_t* const barrier = &full[block % kStages];
    ptx::mbarrier_arrive_expect_tx(barrier, kStageBytes);
    ptx::cp_async_bulk_tensor_load(to, &a, row, block * kDepth, barrier);
    ptx::cp_async_bulk_tensor_load(to + kABytes, &b, column, block * kDepth, barrier);
  };
  if (threadIdx.x == 0) {
    for (uint64_t& barrier : full) ptx::mbarrier_init(&barrier, 1);
    ptx::fence_mbarrier_init();
    for (int block = 0; block < min(kStages - 1, blocks); ++block) copy(block);
  }
  __syncthreads();  // the barriers are there before any thread waits for one

  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  const uint32_t at   = ptx::shared_address(stages);
  const uint64_t of_a = ptx::smem_descriptor_128b(at + warpgroup * 64 * kDepth * 2);
  const uint64_t of_b = ptx::smem_descriptor_128b(at + kABytes);
  float sums[kTileN / 2];
  for (int block = 0; block < blocks; ++block) {
    ptx::mbarrier_wait(&full[block % kStages], block / kStages & 1);
    const int offset = block % kStages * kStageBytes;
    start_products(ptx::advance_descriptor(of_a, offset), ptx::advance_descriptor(of_b, offset), sums,
                   block > 0);
    ptx::wgmma_wait_group<1>();
    __syncthreads();  // both warpgroups are done with the block before, whose stage is filled next
    if (threadIdx.x == 0 && block + kStages - 1 < blocks) copy(block + kStages - 1);
  }
  ptx::wgmma_wait_group<0>();
  ptx::warpgroup_fence_operand(sums);
  store_sums(out, m, n, row + warpgroup * 64, column, sums);
}

}  // namespace

void wgmma(const Gemm& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  allow_shared_memory_once<wgmma_kernel>(kSharedBytes);
  const dim3 grid(blocks_for(p.n, kTileN), blocks_for(p.m, kTileM));
  wgmma_kernel<<<grid, kThreads, kSharedBytes, stream>>>(
      tensor_map(p.a.data(), DType::bf16, p.m, p.k, 2 * p.k, kTileM, kDepth, Swizzle::bytes_128),
      tensor_map(p.b.data(), DType::bf16, p.n, p.k, 2 * p.k, kTileN, kDepth, Swizzle::bytes_128),
      p.out.data(), static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(blocks_for(p.k, kDepth)));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::matmul
