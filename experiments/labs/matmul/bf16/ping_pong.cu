// out = a b^T                 m x n, k deep, bf16
//
// bytes   2 (m k + n k + m n) at least
// flops   2 m n k
// limit   tensor cores. H200: 989 TFLOP/s at 1.83 GHz
// idea    each consumer warpgroup has a tile of its own, 128 x 128, and they take turns: while one
//         multiplies, the other stores what it has, so that the tensor cores do not wait for a tile's
//         end. The price is that a block of k brings 32 KiB for 128 x 128 sums, where the tile of both
//         was 128 x 256 for 48
#include <algorithm>

#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/tensor_map.h"
#include "kernels/gemm/pipeline_state.cuh"
#include "kernels/gemm/store_box.cuh"
#include "kernels/gemm/tile_order.cuh"
#include "rungs.h"
#include "wgmma_tile.cuh"

namespace fathom::lab::matmul {
namespace {

using kernels::PipelineState, kernels::TileOrder;

constexpr int kTileM = 128, kTileN = 128, kConsumers = 2, kThreads = 128 * (kConsumers + 1);
constexpr int kHalves = kTileM / 64;  // 64 rows are a wgmma
constexpr int kABytes = kTileM * kDepth * 2, kBBytes = kTileN * kDepth * 2, kStageBytes = kABytes + kBBytes;
constexpr int kStages = 6, kBoxBytes = 64 * 64 * 2, kBoxes = 2;  // boxes of a warpgroup, used in turn
constexpr int kSharedBytes = kStages * kStageBytes + kConsumers * kBoxes * kBoxBytes;
constexpr int kTurn        = 1 + kConsumers;  // named barriers: a warpgroup's turn at the tensor cores

__global__ void __launch_bounds__(kThreads, 1)
    ping_pong_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                     const __grid_constant__ CUtensorMap out, int blocks, TileOrder order) {
  extern __shared__ __align__(1024) uint8_t stages[];
  __shared__ uint64_t full[kStages], empty[kStages];
  if (threadIdx.x == 0) {
    for (uint64_t& barrier : full) ptx::mbarrier_init(&barrier, 1);
    for (uint64_t& barrier : empty) ptx::mbarrier_init(&barrier, 1);  // one warpgroup reads a stage
    ptx::fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are there before any thread waits for one

  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0), step = static_cast<int>(gridDim.x);
  if (warpgroup == kConsumers) {
    ptx::setmaxnreg_dec<40>();
    if (threadIdx.x != kConsumers * 128) return;
    PipelineState<kStages> state;
    for (int tile = blockIdx.x; tile < order.count(); tile += step) {
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
  const bool leader    = threadIdx.x % 128 == 0;
  const uint32_t at    = ptx::shared_address(stages);
  const uint64_t of_a  = ptx::smem_descriptor_128b(at);
  const uint64_t of_b  = ptx::smem_descriptor_128b(at + kABytes);
  uint8_t* const boxes = stages + kStages * kStageBytes + warpgroup * kBoxes * kBoxBytes;
  float sums[kHalves][kTileN / 2];
  // Of this CTA's tiles, warpgroup 0 has the even ones. The stages of the others pass by: `t` tiles are
  // before.
  for (int t = warpgroup, tile = blockIdx.x + t * step; tile < order.count(); t += 2, tile += 2 * step) {
    // Its turn: the other has started all products of the tile before, and waits for the last of them.
    if (t > 0) ptx::bar_sync(kTurn + warpgroup, kConsumers * 128);
    int before = -1;  // the stage whose products are in flight
    for (int block = t * blocks; block < (t + 1) * blocks; ++block) {
      ptx::mbarrier_wait(&full[block % kStages], block / kStages & 1);
      const int stage = __shfl_sync(~0u, block % kStages, 0), offset = stage * kStageBytes;
#pragma unroll
      for (int half = 0; half < kHalves; ++half)
        start_products(ptx::advance_descriptor(of_a, offset + half * 64 * kDepth * 2),
                       ptx::advance_descriptor(of_b, offset), sums[half], block > t * blocks);
      ptx::wgmma_wait_group<kHalves>();
      if (leader && before >= 0) ptx::mbarrier_arrive(&empty[before]);
      before = stage;
    }
    if (tile + step < order.count()) ptx::bar_arrive(kTurn + (1 - warpgroup), kConsumers * 128);
    ptx::wgmma_wait_group<0>();
    if (leader) ptx::mbarrier_arrive(&empty[before]);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      ptx::warpgroup_fence_operand(sums[half]);
#pragma unroll
      for (int box = 0; box < kTileN / 64; ++box) {
        uint8_t* const to = boxes + box % kBoxes * kBoxBytes;
        // TMA has read what this box held before; only the leader can know.
        if (leader) ptx::cp_async_bulk_wait_group_read<kBoxes - 1>();
        ptx::bar_sync(1 + warpgroup, 128);
        kernels::write_box<bf16>(ptx::shared_address(to), sums[half], box);
        ptx::fence_proxy_async();
        ptx::bar_sync(1 + warpgroup, 128);  // all of the box is written
        if (leader) {
          ptx::cp_async_bulk_tensor_store(&out, order.row(tile) * kTileM + half * 64,
                                          order.column(tile) * kTileN + box * 64, to);
          ptx::cp_async_bulk_commit_group();
        }
      }
    }
  }
  // Shared memory must outlive the copies that read it.
  if (leader) ptx::cp_async_bulk_wait_group_read<0>();
}

}  // namespace

void ping_pong(const Gemm& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  allow_shared_memory_once<ping_pong_kernel>(kSharedBytes);
  const TileOrder order{static_cast<int>(blocks_for(p.m, kTileM)), static_cast<int>(blocks_for(p.n, kTileN)),
                        16};
  const int grid = std::min(order.count(), multiprocessors());
  ping_pong_kernel<<<grid, kThreads, kSharedBytes, stream>>>(
      tensor_map(p.a.data(), DType::bf16, p.m, p.k, 2 * p.k, kTileM, kDepth, Swizzle::bytes_128),
      tensor_map(p.b.data(), DType::bf16, p.n, p.k, 2 * p.k, kTileN, kDepth, Swizzle::bytes_128),
      tensor_map(p.out.data(), DType::bf16, p.m, p.n, 2 * p.n, 64, 64, Swizzle::bytes_128),
      static_cast<int>(blocks_for(p.k, kDepth)), order);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::matmul
