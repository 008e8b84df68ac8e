// D = A B^T on Hopper's tensor cores: A is m x k, B is n x k, D is m x n, all row-major bf16; sums in fp32.
//
// bytes   2 (m k + n k + m n)
// flops   2 m n k
// limit   tensor cores: 4096 flops a clock and multiprocessor. What the clock is, power decides: on an H200
//         it falls from 1.98 to about 1.6 GHz under this load with random data
// idea    persistent clusters of CTAs walk over the tiles of D. In a CTA a producer warp loads blocks of A
// and
//         B by TMA into a ring of stages, and consumer warpgroups multiply them, 64 rows each (wgmma
//         m64nNk16). The CTAs of a cluster share their columns of D: each loads a part of the block of B and
//         multicasts it. D leaves by TMA from its own shared memory while the next tile is multiplied.
//         (CUTLASS: KernelTmaWarpSpecializedCooperative with a persistent tile scheduler.)
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/ptx.cuh"
#include "cuda/wgmma.cuh"
#include "kernels/gemm/pipeline_state.cuh"
#include "kernels/gemm/store_box.cuh"
#include "kernels/gemm/tile_order.cuh"

namespace fathom::kernels::gemm_sm90 {

// kConsumers   warpgroups, of 64 rows of D each
// kTileN       columns of D: N of wgmma
// kStages      stages of the ring
// kCluster     CTAs that share their columns of D
template <int kConsumers_, int kTileN_, int kStages_, int kCluster_>
struct Shape {
  static constexpr int kConsumers = kConsumers_, kTileN = kTileN_, kStages = kStages_, kCluster = kCluster_;

  static constexpr int kTileM   = 64 * kConsumers;
  static constexpr int kTileK   = 64;  // 128 bytes: the span of the swizzle
  static constexpr int kThreads = 128 * (kConsumers + 1);

  static constexpr int kABytes = kTileM * kTileK * 2, kBBytes = kTileN * kTileK * 2;
  static constexpr int kBoxN = 64, kBoxBytes = 64 * kBoxN * 2;  // a box of D: 64 x 64
  static constexpr int kBoxes       = 2;                        // of each warpgroup, used in turn
  static constexpr int kSharedBytes = kStages * (kABytes + kBBytes) + kConsumers * kBoxes * kBoxBytes;

  // The most for the consumers that leaves the producer enough.
  static constexpr int kProducerRegisters = kConsumers == 3 ? 32 : 40,
                       kConsumerRegisters = kConsumers == 3 ? 160 : 232;
};

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    gemm_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                const __grid_constant__ CUtensorMap d, int k_blocks, TileOrder order) {
  extern __shared__ __align__(1024) uint8_t a_stages[];
  __shared__ uint64_t full[S::kStages], empty[S::kStages];
  uint8_t* const b_stages = a_stages + S::kStages * S::kABytes;
  uint8_t* const boxes    = b_stages + S::kStages * S::kBBytes;

  const int warpgroup = threadIdx.x / 128;  // the last one produces
  const int rank      = S::kCluster > 1 ? ptx::cluster_ctarank() : 0;
  const int step      = gridDim.x / S::kCluster;

  if (threadIdx.x == 0) {
    for (int s = 0; s < S::kStages; ++s) {
      ptx::mbarrier_init(&full[s], 1);
      ptx::mbarrier_init(&empty[s], S::kConsumers * S::kCluster);
    }
    ptx::fence_mbarrier_init();
  }
  ptx::griddepcontrol_wait();  // the kernels before may write a and b, or read d
  // No CTA arrives on, or copies to, another one before that has its barriers.
  if constexpr (S::kCluster > 1) {
    ptx::cluster_barrier_arrive();
    ptx::cluster_barrier_wait();
  } else {
    __syncthreads();
  }

  PipelineState<S::kStages> state;
  if (warpgroup == S::kConsumers) {
    ptx::setmaxnreg_dec<S::kProducerRegisters>();
    if (threadIdx.x != S::kConsumers * 128) return;
    ptx::prefetch_tensormap(&a);
    ptx::prefetch_tensormap(&b);
    constexpr int kPartRows = S::kTileN / S::kCluster;
    for (int i = blockIdx.x / S::kCluster; i < order.count(); i += step) {
      const int row    = (order.row(i) * S::kCluster + rank) * S::kTileM;
      const int column = order.column(i) * S::kTileN + rank * kPartRows;
      for (int k = 0; k < k_blocks; ++k, state.next()) {
        uint64_t* const barrier = &full[state.stage];
        ptx::mbarrier_wait(&empty[state.stage], state.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(barrier, S::kABytes + S::kBBytes);
        ptx::cp_async_bulk_tensor_load(a_stages + state.stage * S::kABytes, &a, row, k * S::kTileK, barrier);
        uint8_t* const part = b_stages + state.stage * S::kBBytes + rank * kPartRows * 128;
        if constexpr (S::kCluster > 1)
          ptx::cp_async_bulk_tensor_load_multicast(part, &b, column, k * S::kTileK, barrier,
                                                   (1 << S::kCluster) - 1);
        else
          ptx::cp_async_bulk_tensor_load(part, &b, column, k * S::kTileK, barrier);
      }
    }
    // Other CTAs may still arrive here. This one exits when all its stages have been released by all.
    if constexpr (S::kCluster > 1)
      for (int s = 0; s < S::kStages; ++s, state.next())
        ptx::mbarrier_wait(&empty[state.stage], state.parity ^ 1);
    return;
  }

  ptx::setmaxnreg_inc<S::kConsumerRegisters>();
  const bool leader = threadIdx.x % 128 == 0;
  const uint64_t a_operand =
      ptx::smem_descriptor_128b(__shfl_sync(~0u, ptx::shared_address(a_stages) + warpgroup * (64 * 128), 0));
  const uint64_t b_operand = ptx::smem_descriptor_128b(__shfl_sync(~0u, ptx::shared_address(b_stages), 0));
  const uint32_t box_at    = ptx::shared_address(boxes) + warpgroup * S::kBoxes * S::kBoxBytes;
  // Of the CTA that this thread tells when a stage is free: thread r of a warpgroup tells CTA r.
  const bool releases = threadIdx.x % 128 < S::kCluster;
  const uint32_t released =
      S::kCluster > 1 ? ptx::mapa_shared_cluster(ptx::shared_address(empty), threadIdx.x % S::kCluster)
                      : ptx::shared_address(empty);
  const auto release = [&](int stage) {
    if (!releases) return;
    if constexpr (S::kCluster > 1)
      ptx::mbarrier_arrive_cluster(released + stage * 8);
    else
      ptx::mbarrier_arrive(released + stage * 8);
  };

  float sums[S::kTileN / 2];
  int stored = 0;  // boxes
  for (int i = blockIdx.x / S::kCluster; i < order.count(); i += step) {
    int before = -1;  // the stage whose products are in flight
    for (int k = 0; k < k_blocks; ++k, state.next()) {
      ptx::mbarrier_wait(&full[state.stage], state.parity);
      const int stage  = __shfl_sync(~0u, state.stage, 0);
      const uint64_t x = ptx::advance_descriptor(a_operand, stage * S::kABytes);
      const uint64_t y = ptx::advance_descriptor(b_operand, stage * S::kBBytes);
      ptx::warpgroup_fence_operand(sums);
      ptx::wgmma_fence();
#pragma unroll
      for (int s = 0; s < 4; ++s)
        ptx::wgmma(sums, ptx::advance_descriptor(x, 32 * s), ptx::advance_descriptor(y, 32 * s),
                   k > 0 || s > 0);
      ptx::wgmma_commit_group();
      ptx::warpgroup_fence_operand(sums);
      ptx::wgmma_wait_group<1>();
      if (before >= 0) release(before);
      before = stage;
    }
    ptx::wgmma_wait_group<0>();
    ptx::warpgroup_fence_operand(sums);
    if (before >= 0) release(before);

    const int row = (order.row(i) * S::kCluster + rank) * S::kTileM + warpgroup * 64;
#pragma unroll
    for (int box = 0; box < S::kTileN / S::kBoxN; ++box, ++stored) {
      const int turn = stored % S::kBoxes;
      // TMA has read what this box held before; only the leader can know.
      if (leader) ptx::cp_async_bulk_wait_group_read<S::kBoxes - 1>();
      ptx::bar_sync(1 + warpgroup, 128);
      write_box(box_at + turn * S::kBoxBytes, sums, box);
      ptx::fence_proxy_async();
      ptx::bar_sync(1 + warpgroup, 128);  // all of the box is written
      if (leader) {
        ptx::cp_async_bulk_tensor_store(&d, row, order.column(i) * S::kTileN + box * S::kBoxN,
                                        boxes + (warpgroup * S::kBoxes + turn) * S::kBoxBytes);
        ptx::cp_async_bulk_commit_group();
      }
    }
  }
  // Shared memory must outlive the copies that read it.
  if (leader) ptx::cp_async_bulk_wait_group_read<0>();
}

}  // namespace fathom::kernels::gemm_sm90
