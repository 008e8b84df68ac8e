// out = a b^T                 m x n, k deep, bf16
//
// bytes   2 (m k + n k + m n) at least
// flops   2 m n k
// limit   tensor cores. H200: 989 TFLOP/s at 1.83 GHz
// idea    a CTA for each multiprocessor stays and walks over tiles: the producer loads the next tile's blocks
//         while the consumers store this one. The tiles in work at the same time form a region of out about
//         as high as it is wide, so that together they read few rows of a and b from DRAM
#include <algorithm>

#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/tensor_map.h"
#include "kernels/gemm/pipeline_state.cuh"
#include "kernels/gemm/tile_order.cuh"
#include "rungs.h"
#include "wgmma_tile.cuh"

namespace fathom::lab::matmul {
namespace {

using kernels::PipelineState, kernels::TileOrder;

constexpr int kTileM = 128, kTileN = 256, kConsumers = 2, kThreads = 128 * (kConsumers + 1);
constexpr int kABytes = kTileM * kDepth * 2, kBBytes = kTileN * kDepth * 2, kStageBytes = kABytes + kBBytes;
constexpr int kStages = 4, kSharedBytes = kStages * kStageBytes;

__global__ void __launch_bounds__(kThreads, 1)
    persistent_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, bf16* out,
                      int m, int n, int blocks, TileOrder order) {
  extern __shared__ __align__(1024) uint8_t stages[];
  __shared__ uint64_t full[kStages], empty[kStages];
  if (threadIdx.x == 0) {
    for (uint64_t& barrier : full) ptx::mbarrier_init(&barrier, 1);
    for (uint64_t& barrier : empty) ptx::mbarrier_init(&barrier, kConsumers);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are there before any thread waits for one

  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
  PipelineState<kStages> state;
  if (warpgroup == kConsumers) {
    ptx::setmaxnreg_dec<40>();
    if (threadIdx.x != kConsumers * 128) return;
    for (int tile = blockIdx.x; tile < order.count(); tile += gridDim.x) {
      const int row = order.row(tile) * kTileM, column = order.column(tile) * kTileN;
      for (int block = 0; block < blocks; ++block, state.next()) {
        uint8_t* const to    = stages + state.stage * kStageBytes;
        uint64_t* const done = &full[state.stage];
        ptx::mbarrier_wait(&empty[state.stage], state.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(done, kStageBytes);
        ptx::cp_async_bulk_tensor_load(to, &a, row, block * kDepth, done);
        ptx::cp_async_bulk_tensor_load(to + kABytes, &b, column, block * kDepth, done);
      }
    }
    return;
  }

  ptx::setmaxnreg_inc<232>();
  const bool leader   = threadIdx.x % 128 == 0;
  const uint32_t at   = ptx::shared_address(stages);
  const uint64_t of_a = ptx::smem_descriptor_128b(at + warpgroup * 64 * kDepth * 2);
  const uint64_t of_b = ptx::smem_descriptor_128b(at + kABytes);
  float sums[kTileN / 2];
  for (int tile = blockIdx.x; tile < order.count(); tile += gridDim.x) {
    int before = -1;  // the stage whose products are in flight
    for (int block = 0; block < blocks; ++block, state.next()) {
      ptx::mbarrier_wait(&full[state.stage], state.parity);
      const int stage = __shfl_sync(~0u, state.stage, 0), offset = stage * kStageBytes;
      start_products(ptx::advance_descriptor(of_a, offset), ptx::advance_descriptor(of_b, offset), sums,
                     block > 0);
      ptx::wgmma_wait_group<1>();
      if (leader && before >= 0) ptx::mbarrier_arrive(&empty[before]);
      before = stage;
    }
    ptx::wgmma_wait_group<0>();
    ptx::warpgroup_fence_operand(sums);
    if (leader) ptx::mbarrier_arrive(&empty[before]);
    store_sums(out, m, n, order.row(tile) * kTileM + warpgroup * 64, order.column(tile) * kTileN, sums);
  }
}

}  // namespace

void persistent(const Gemm& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  allow_shared_memory_once<persistent_kernel>(kSharedBytes);
  const TileOrder order{static_cast<int>(blocks_for(p.m, kTileM)), static_cast<int>(blocks_for(p.n, kTileN)),
                        16};
  const int grid = std::min(order.count(), multiprocessors());
  persistent_kernel<<<grid, kThreads, kSharedBytes, stream>>>(
      tensor_map(p.a.data(), DType::bf16, p.m, p.k, 2 * p.k, kTileM, kDepth, Swizzle::bytes_128),
      tensor_map(p.b.data(), DType::bf16, p.n, p.k, 2 * p.k, kTileN, kDepth, Swizzle::bytes_128),
      p.out.data(), static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(blocks_for(p.k, kDepth)),
      order);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::matmul
