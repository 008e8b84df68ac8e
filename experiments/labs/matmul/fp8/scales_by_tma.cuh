// An e4m3 product with scales of blocks, whose scales come by TMA with the blocks that they belong to: the
// kernel of kernels/gemm/gemm_sm90.cuh, with a scale of a for each row in a stage, and those of b for the
// blocks of 128 columns that the tile touches. No thread waits for a load from L2.
#pragma once

#include <algorithm>

#include "experiments/labs/matmul/gemm_fp8.h"
#include "kernels/gemm/gemm_sm90.cuh"

namespace fathom::lab::matmul {

using ScaledTile = kernels::gemm_sm90::Shape<2, 192, 4, 2, kernels::gemm_sm90::E4m3Blocks>;
using ScaledRing = kernels::gemm_sm90::Ring<ScaledTile>;

// TMA copies no less than 16 bytes, from a multiple of 16: scales of b for four blocks of k, of which a stage
// uses one. A tile of 192 columns may start amid a block of 128, and then touches two as well.
inline constexpr int kScalesOfB = 2, kScalesABytes = 4 * ScaledTile::kTileM, kScalesBBytes = 16 * kScalesOfB;
inline constexpr int kScaleBytes  = kScalesABytes + 128;         // of a stage: TMA writes to multiples of 128
inline constexpr int kTurnsOf     = 1 + ScaledTile::kConsumers;  // named barriers: a warpgroup's turn
inline constexpr int kScaledBytes = ScaledTile::kSharedBytes + ScaledTile::kStages * kScaleBytes;
static_assert(kScaledBytes <= 232448);

// The turns of two warpgroups at the tensor cores. Without them both may multiply at the same time, at half
// the speed each, and then add at the same time while the tensor cores wait.
template <bool kTurns>
struct Turns {
  int warpgroup, blocks;  // of k, in all tiles of the CTA
  int done = 0;

  __device__ void take() const {
    if (kTurns && (warpgroup > 0 || done > 0)) ptx::bar_sync(kTurnsOf + warpgroup, 256);
  }
  __device__ void pass() {
    ++done;
    if (kTurns && (warpgroup == 0 || done < blocks)) ptx::bar_arrive(kTurnsOf + (1 - warpgroup), 256);
  }
};

// sums = the products of a tile. `scales`: the shared address of those of stage 0; `column`: the tile's
// first.
template <bool kTurns>
__device__ void multiply_scaled(ScaledRing& ring, Turns<kTurns>& turns, int k_blocks, uint32_t scales,
                                int column, float (&sums)[ScaledTile::kTileN / 2]) {
  using S                 = ScaledTile;
  const uint32_t scales_a = scales + (threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4) * 4;
  const uint32_t scales_b = scales + kScalesABytes;
  const bool amid         = column / 64 % 2;  // the tile starts amid a block

#pragma unroll
  for (float& sum : sums) sum = 0;
  for (int k = 0; k < k_blocks; ++k) {
    const int stage = ring.wait();
    // Read before the products start, which all four warps do together: when they are complete, one thread
    // releases the stage for all.
    const auto scale_at = [stage](uint32_t at) {
      return __uint_as_float(ptx::ld_shared(at + stage * kScaleBytes));
    };
    const float low = scale_at(scales_a), high = scale_at(scales_a + 8 * 4);
    float of_b[kScalesOfB];
#pragma unroll
    for (int i = 0; i < kScalesOfB; ++i) of_b[i] = scale_at(scales_b + i * 16 + k % 4 * 4);
    turns.take();
    const uint64_t a = ptx::advance_descriptor(ring.a, stage * S::kABytes);
    const uint64_t b = ptx::advance_descriptor(ring.b, stage * S::kBBytes);
    float partial[S::kTileN / 2];
    ptx::warpgroup_fence_operand(partial);
    ptx::wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      S::Format::wgmma(partial, ptx::advance_descriptor(a, 32 * s), ptx::advance_descriptor(b, 32 * s),
                       s > 0);
      if (s >= 2) ptx::wgmma_commit_group();  // the last one apart
    }
    ptx::warpgroup_fence_operand(partial);
    // The other warpgroup's first product follows this one's last.
    ptx::wgmma_wait_group<1>();
    turns.pass();
    ptx::wgmma_wait_group<0>();
    ptx::warpgroup_fence_operand(partial);
    ring.release(stage);
#pragma unroll
    for (int q = 0; q < S::kTileN / 64; ++q) {  // 64 columns
      const float of_block = q == 0 || (q == 1 && !amid) ? of_b[0] : of_b[1];
      const float scale[2] = {low * of_block, high * of_block};
#pragma unroll
      for (int i = 0; i < 32; ++i)
        sums[32 * q + i] = fmaf(partial[32 * q + i], scale[i / 2 % 2], sums[32 * q + i]);
    }
  }
}

template <bool kTurns>
__global__ void __launch_bounds__(ScaledTile::kThreads, 1)
    scales_by_tma_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                         const __grid_constant__ CUtensorMap a_scales,
                         const __grid_constant__ CUtensorMap b_scales,
                         const __grid_constant__ CUtensorMap out, int k_blocks, kernels::TileOrder order) {
  using S = ScaledTile;
  extern __shared__ __align__(1024) uint8_t a_stages[];
  uint8_t* const b_stages     = a_stages + S::kStages * S::kABytes;
  uint8_t* const boxes        = b_stages + S::kStages * S::kBBytes;
  uint8_t* const scale_stages = boxes + S::kConsumers * S::kBoxes * S::kBoxBytes;
  uint64_t* const full        = reinterpret_cast<uint64_t*>(scale_stages + S::kStages * kScaleBytes);
  uint64_t* const empty       = full + S::kStages;

  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);  // the last one produces
  const int rank = ptx::cluster_ctarank(), first = blockIdx.x / S::kCluster, step = gridDim.x / S::kCluster;
  if (threadIdx.x == 0) {
    for (int s = 0; s < S::kStages; ++s) {
      ptx::mbarrier_init(&full[s], 1);
      ptx::mbarrier_init(&empty[s], S::kConsumers * S::kCluster);
    }
    ptx::fence_mbarrier_init();
  }
  // No CTA arrives on, or copies to, another one before that has its barriers.
  ptx::cluster_barrier_arrive();
  ptx::cluster_barrier_wait();

  if (warpgroup == S::kConsumers) {
    ptx::setmaxnreg_dec<S::kProducerRegisters>();
    if (threadIdx.x != S::kConsumers * 128) return;
    constexpr int kPartRows = S::kTileN / S::kCluster;
    kernels::PipelineState<S::kStages> state;
    for (int i = first; i < order.count(); i += step) {
      const int row = (order.row(i) * S::kCluster + rank) * S::kTileM, column = order.column(i) * S::kTileN;
      for (int k = 0; k < k_blocks; ++k, state.next()) {
        uint64_t* const barrier  = &full[state.stage];
        uint8_t* const of_scales = scale_stages + state.stage * kScaleBytes;
        ptx::mbarrier_wait(&empty[state.stage], state.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(barrier, S::kABytes + S::kBBytes + kScalesABytes + kScalesBBytes);
        ptx::cp_async_bulk_tensor_load(a_stages + state.stage * S::kABytes, &a, row, k * S::kTileK, barrier);
        ptx::cp_async_bulk_tensor_load_multicast(b_stages + state.stage * S::kBBytes + rank * kPartRows * 128,
                                                 &b, column + rank * kPartRows, k * S::kTileK, barrier,
                                                 (1 << S::kCluster) - 1);
        ptx::cp_async_bulk_tensor_load(of_scales, &a_scales, k, row, barrier);
        ptx::cp_async_bulk_tensor_load(of_scales + kScalesABytes, &b_scales, column / 128, k / 4 * 4,
                                       barrier);
      }
    }
    // The other CTA may still arrive here. This one exits when all its stages have been released by both.
    for (int s = 0; s < S::kStages; ++s, state.next())
      ptx::mbarrier_wait(&empty[state.stage], state.parity ^ 1);
    return;
  }

  ptx::setmaxnreg_inc<S::kConsumerRegisters>();
  const bool leader     = threadIdx.x % 128 == 0;
  const uint32_t box_at = ptx::shared_address(boxes) + warpgroup * S::kBoxes * S::kBoxBytes;
  const uint32_t a_at   = __shfl_sync(~0u, ptx::shared_address(a_stages) + warpgroup * (64 * 128), 0);
  // Thread r of a warpgroup tells CTA r of the cluster when a stage is free.
  ScaledRing ring{.full     = ptx::shared_address(full),
                  .a        = ptx::smem_descriptor_128b(a_at),
                  .b        = ptx::smem_descriptor_128b(__shfl_sync(~0u, ptx::shared_address(b_stages), 0)),
                  .released = ptx::mapa_shared_cluster(ptx::shared_address(empty), threadIdx.x % S::kCluster),
                  .releases = threadIdx.x % 128 < S::kCluster};
  Turns<kTurns> turns{.warpgroup = warpgroup, .blocks = (order.count() - first + step - 1) / step * k_blocks};
  float sums[S::kTileN / 2];
  int stored = 0;  // boxes
  for (int i = first; i < order.count(); i += step) {
    const int row    = (order.row(i) * S::kCluster + rank) * S::kTileM + warpgroup * 64;
    const int column = order.column(i) * S::kTileN;
    multiply_scaled(ring, turns, k_blocks, ptx::shared_address(scale_stages), column, sums);
#pragma unroll
    for (int box = 0; box < S::kTileN / S::kBoxN; ++box, ++stored) {
      const int turn = stored % S::kBoxes;
      // TMA has read what this box held before; only the leader can know.
      if (leader) ptx::cp_async_bulk_wait_group_read<S::kBoxes - 1>();
      ptx::bar_sync(1 + warpgroup, 128);
      kernels::write_box<bf16, S::kBoxN>(box_at + turn * S::kBoxBytes, sums, box);
      ptx::fence_proxy_async();
      ptx::bar_sync(1 + warpgroup, 128);  // all of the box is written
      if (leader) {
        ptx::cp_async_bulk_tensor_store(&out, row, column + box * S::kBoxN,
                                        boxes + (warpgroup * S::kBoxes + turn) * S::kBoxBytes);
        ptx::cp_async_bulk_commit_group();
      }
    }
  }
  // Shared memory must outlive the copies that read it.
  if (leader) ptx::cp_async_bulk_wait_group_read<0>();
}

template <bool kTurns>
void launch_scales_by_tma(const GemmFp8& p, StreamRef stream) {
  using S = ScaledTile;
  if (p.out.size() == 0) return;
  const auto scales = [](View<const float, 2> v, int box_rows, int box_columns) {
    return tensor_map(v.data(), DType::fp32, v.extent(0), v.extent(1), 4 * v.stride(0), box_rows,
                      box_columns);
  };
  const kernels::TileOrder order{static_cast<int>(blocks_for(p.m, S::kTileM * S::kCluster)),
                                 static_cast<int>(blocks_for(p.n, S::kTileN)), 16 / S::kCluster};
  const int clusters = std::min(order.count(), multiprocessors() / S::kCluster);
  allow_shared_memory_once<scales_by_tma_kernel<kTurns>>(kScaledBytes);
  launch_in_clusters(
      scales_by_tma_kernel<kTurns>, dim3(static_cast<unsigned>(clusters * S::kCluster)), dim3(S::kThreads),
      kScaledBytes, S::kCluster, stream,
      tensor_map(p.a.data(), DType::fp8_e4m3, p.m, p.k, p.k, S::kTileM, S::kTileK, Swizzle::bytes_128),
      tensor_map(p.b.data(), DType::fp8_e4m3, p.n, p.k, p.k, S::kTileN / S::kCluster, S::kTileK,
                 Swizzle::bytes_128),
      scales(p.a_scales, 1, S::kTileM), scales(p.b_scales, kScalesOfB, 4),
      tensor_map(p.out.data(), DType::bf16, p.m, p.n, 2 * p.n, 64, S::kBoxN, Swizzle::bytes_128),
      static_cast<int>(blocks_for(p.k, S::kTileK)), order);
}

}  // namespace fathom::lab::matmul
