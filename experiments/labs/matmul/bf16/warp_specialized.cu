// out = a b^T                 m x n, k deep, bf16
//
// bytes   2 (m k + n k + m n) at least
// flops   2 m n k
// limit   tensor cores. H200: 989 TFLOP/s at 1.83 GHz
// idea    a producer warp loads, two consumer warpgroups multiply. No barrier of all threads a block: a stage
//         has an mbarrier for "full" and one for "empty", and a warpgroup runs ahead of the other. setmaxnreg
//         gives the producer's registers to the consumers
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/tensor_map.h"
#include "rungs.h"
#include "wgmma_tile.cuh"

namespace fathom::lab::matmul {
namespace {

constexpr int kTileM = 128, kTileN = 128, kConsumers = 2, kThreads = 128 * (kConsumers + 1);
constexpr int kABytes = kTileM * kDepth * 2, kBBytes = kTileN * kDepth * 2, kStageBytes = kABytes + kBBytes;
constexpr int kStages = 6, kSharedBytes = kStages * kStageBytes;

__global__ void __launch_bounds__(kThreads, 1)
    warp_specialized_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                            bf16* out, int m, int n, int blocks) {
  extern __shared__ __align__(1024) uint8_t stages[];
  __shared__ uint64_t full[kStages], empty[kStages];
  const int row = blockIdx.y * kTileM, column = blockIdx.x * kTileN;
  if (threadIdx.x == 0) {
    for (uint64_t& barrier : full) ptx::mbarrier_init(&barrier, 1);
    for (uint64_t& barrier : empty) ptx::mbarrier_init(&barrier, kConsumers);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are there before any thread waits for one

  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (warpgroup == kConsumers) {
    ptx::setmaxnreg_dec<40>();
    if (threadIdx.x != kConsumers * 128) return;
    for (int block = 0; block < blocks; ++block) {
      const int stage = block % kStages, phase = block / kStages & 1;
      uint8_t* const to = stages + stage * kStageBytes;
      ptx::mbarrier_wait(&empty[stage], phase ^ 1);
      ptx::mbarrier_arrive_expect_tx(&full[stage], kStageBytes);
      ptx::cp_async_bulk_tensor_load(to, &a, row, block * kDepth, &full[stage]);
      ptx::cp_async_bulk_tensor_load(to + kABytes, &b, column, block * kDepth, &full[stage]);
    }
    return;
  }

  ptx::setmaxnreg_inc<232>();
  const bool leader   = threadIdx.x % 128 == 0;
  const uint32_t at   = ptx::shared_address(stages);
  const uint64_t of_a = ptx::smem_descriptor_128b(at + warpgroup * 64 * kDepth * 2);
  const uint64_t of_b = ptx::smem_descriptor_128b(at + kABytes);
  float sums[kTileN / 2];
  for (int block = 0; block < blocks; ++block) {
    ptx::mbarrier_wait(&full[block % kStages], block / kStages & 1);
    const int offset = block % kStages * kStageBytes;
    start_products(ptx::advance_descriptor(of_a, offset), ptx::advance_descriptor(of_b, offset), sums,
                   block > 0);
    ptx::wgmma_wait_group<1>();  // the block before is done: its stage is free
    if (leader && block > 0) ptx::mbarrier_arrive(&empty[(block - 1) % kStages]);
  }
  ptx::wgmma_wait_group<0>();
  ptx::warpgroup_fence_operand(sums);
  store_sums(out, m, n, row + warpgroup * 64, column, sums);
}

}  // namespace

void warp_specialized(const Gemm& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  allow_shared_memory_once<warp_specialized_kernel>(kSharedBytes);
  const dim3 grid(blocks_for(p.n, kTileN), blocks_for(p.m, kTileM));
  warp_specialized_kernel<<<grid, kThreads, kSharedBytes, stream>>>(
      tensor_map(p.a.data(), DType::bf16, p.m, p.k, 2 * p.k, kTileM, kDepth, Swizzle::bytes_128),
      tensor_map(p.b.data(), DType::bf16, p.n, p.k, 2 * p.k, kTileN, kDepth, Swizzle::bytes_128),
      p.out.data(), static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(blocks_for(p.k, kDepth)));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::matmul
