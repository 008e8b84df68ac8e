// D = A B^T on Hopper's tensor cores: A is m x k, B is n x k, D is m x n, all row-major; sums in fp32. A and
// B are bf16, e4m3 (with scales) or fp32 (multiplied as tf32).
//
// bytes   e (m k + n k) + d m n, with e and d bytes an element of A and B, and of D
// flops   2 m n k
// limit   tensor cores: 4096 flops a clock and multiprocessor in bf16, 8192 in e4m3, 2048 in tf32. What the
//         clock is, power decides: on an H200 it falls from 1.98 to about 1.6 GHz under this load with random
//         data
// idea    persistent clusters of CTAs walk over the tiles of D. In a CTA a producer warp loads blocks of A
// and
//         B by TMA into a ring of stages, and consumer warpgroups multiply them, 64 rows each (wgmma m64nN).
//         The CTAs of a cluster share their columns of D: each loads a part of the block of B and multicasts
//         it. D leaves by TMA from its own shared memory while the next tile is multiplied. (CUTLASS:
//         KernelTmaWarpSpecializedCooperative with a persistent tile scheduler.) A block is 128 bytes of k
//         for every type, so that only the instruction differs.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/ptx.cuh"
#include "cuda/tensor_map.h"
#include "cuda/wgmma.cuh"
#include "kernels/gemm/pipeline_state.cuh"
#include "kernels/gemm/store_box.cuh"
#include "kernels/gemm/tile_order.cuh"

namespace fathom::kernels::gemm_sm90 {

// What is multiplied how. Scales: what D is multiplied by, beside the operands.
struct Bf16 {
  using Element = bf16;
  using Output  = bf16;
  struct Scales {};
  template <int kSums>
  __device__ static void wgmma(float (&sums)[kSums], uint64_t a, uint64_t b, bool add) {
    ptx::wgmma(sums, a, b, add);
  }
};
struct Tf32 {
  using Element = float;
  using Output  = float;
  struct Scales {};
  template <int kSums>
  __device__ static void wgmma(float (&sums)[kSums], uint64_t a, uint64_t b, bool add) {
    ptx::wgmma_tf32(sums, a, b, add);
  }
};
struct E4m3 {
  using Element = fp8_e4m3;
  using Output  = bf16;
  struct Scales {
    float both;  // of A times that of B
  };
  template <int kSums>
  __device__ static void wgmma(float (&sums)[kSums], uint64_t a, uint64_t b, bool add) {
    ptx::wgmma_e4m3(sums, a, b, add);
  }
};
// A scale for 128 numbers of a row of A, and for 128 x 128 numbers of B, as DeepSeek-V3 has them. The
// products of a block of 128 k are summed apart (the tensor cores keep 14 bits of such sums), then scaled and
// added to sums in fp32 by the CUDA cores.
struct E4m3Blocks : E4m3 {
  struct Scales {
    View<const float, 2> a;  // [k / 128, at least m]
    View<const float, 2> b;  // [n / 128, at least k / 128]
    int rows;                // m
  };
};

// kConsumers   warpgroups, of 64 rows of D each
// kTileN       columns of D
// kStages      stages of the ring
// kCluster     CTAs that share their columns of D
// kPartN       columns of D that are multiplied at a time: N of wgmma. Where partial sums need registers too,
//              it may have to be less than kTileN
template <int kConsumers_, int kTileN_, int kStages_, int kCluster_, class Format_ = Bf16,
          int kPartN_ = kTileN_>
struct Shape {
  using Format                    = Format_;
  using Element                   = typename Format::Element;
  using Output                    = typename Format::Output;
  using Scales                    = typename Format::Scales;
  static constexpr int kConsumers = kConsumers_, kTileN = kTileN_, kStages = kStages_, kCluster = kCluster_,
                       kPartN = kPartN_;

  static constexpr int kTileM   = 64 * kConsumers;
  static constexpr int kTileK   = 128 / int{sizeof(Element)};  // 128 bytes: the span of the swizzle
  static constexpr int kThreads = 128 * (kConsumers + 1);

  static constexpr int kABytes = kTileM * 128, kBBytes = kTileN * 128;
  // A box of D: 64 rows of 128 bytes; of 96, without a swizzle, where the tile is no whole number of those.
  // Each warpgroup has some, used in turn: one for each box of its tile, if there is room.
  static constexpr int kOutputBytes = static_cast<int>(sizeof(Output));
  static constexpr bool kWholeLines = kTileN % (128 / kOutputBytes) == 0;
  static constexpr int kBoxN        = (kWholeLines ? 128 : 96) / kOutputBytes;
  static constexpr int kBoxBytes    = 64 * kBoxN * kOutputBytes;
  static constexpr int kRingBytes   = kStages * (kABytes + kBBytes + 16);  // 16: two barriers
  static constexpr int kRoom        = (232448 - kRingBytes) / (kConsumers * kBoxBytes);
  static constexpr int kBoxes       = kRoom < kTileN / kBoxN ? kRoom : kTileN / kBoxN;
  static constexpr int kSharedBytes = kRingBytes + kConsumers * kBoxes * kBoxBytes;
  static_assert(kBoxes >= 1);

  // The most for the consumers that leaves the producer enough.
  static constexpr int kProducerRegisters = kConsumers == 3 ? 32 : 40,
                       kConsumerRegisters = kConsumers == 3 ? 160 : 232;
};

// What a consumer warpgroup knows of the ring.
template <class S>
struct Ring {
  uint32_t full;      // its barriers
  uint64_t a, b;      // descriptors of the warpgroup's operands in stage 0
  uint32_t released;  // the barriers `empty` of the CTA that this thread tells when a stage is free ...
  bool releases;      // ... if it tells one
  PipelineState<S::kStages> state = {};

  // Waits for the next block; returns its stage.
  __device__ int wait() {
    ptx::mbarrier_wait(full + state.stage * 8, state.parity);
    const int stage = __shfl_sync(~0u, state.stage, 0);
    state.next();
    return stage;
  }
  __device__ void release(int stage) const {
    if (!releases) return;
    if constexpr (S::kCluster > 1)
      ptx::mbarrier_arrive_cluster(released + stage * 8);
    else
      ptx::mbarrier_arrive(released + stage * 8);
  }
};

// sums = the products of a tile.
template <class S>
__device__ void multiply(Ring<S>& ring, int k_blocks, float (&sums)[S::kTileN / 2]) {
  int before = -1;  // the stage whose products are in flight
  for (int k = 0; k < k_blocks; ++k) {
    const int stage  = ring.wait();
    const uint64_t a = ptx::advance_descriptor(ring.a, stage * S::kABytes);
    const uint64_t b = ptx::advance_descriptor(ring.b, stage * S::kBBytes);
    ptx::warpgroup_fence_operand(sums);
    ptx::wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; ++s)
      S::Format::wgmma(sums, ptx::advance_descriptor(a, 32 * s), ptx::advance_descriptor(b, 32 * s),
                       k > 0 || s > 0);
    ptx::wgmma_commit_group();
    ptx::warpgroup_fence_operand(sums);
    ptx::wgmma_wait_group<1>();
    if (before >= 0) ring.release(before);
    before = stage;
  }
  ptx::wgmma_wait_group<0>();
  ptx::warpgroup_fence_operand(sums);
  if (before >= 0) ring.release(before);
}

// The same with scales of blocks. While this warpgroup scales and adds, the other one's products keep the
// tensor cores busy. `row`: the warpgroup's first one of D; `column`: the tile's.
template <class S>
__device__ void multiply_and_promote(Ring<S>& ring, int k_blocks, const E4m3Blocks::Scales& scales, int row,
                                     int column, float (&sums)[S::kTileN / 2]) {
  static_assert(S::kTileK == 128 && S::kPartN % 64 == 0 && S::kTileN % S::kPartN == 0);
  constexpr int kBlocksN     = (S::kTileN + 127) / 128;  // blocks of B that a tile touches
  const int lane             = threadIdx.x % 32;
  const int lane_row         = row + threadIdx.x / 32 % 4 * 16 + lane / 4;
  const float* const of_low  = scales.a.data() + min(lane_row, scales.rows - 1);
  const float* const of_high = scales.a.data() + min(lane_row + 8, scales.rows - 1);
  const auto a_stride = static_cast<int>(scales.a.stride(0)), b_stride = static_cast<int>(scales.b.stride(0));
  const float* of_b[kBlocksN];
#pragma unroll
  for (int i = 0; i < kBlocksN; ++i)
    of_b[i] = scales.b.data() + min(column / 128 + i, static_cast<int>(scales.b.extent(0)) - 1) * b_stride;
  const bool amid = S::kTileN % 128 != 0 && column / 64 % 2;  // the tile starts amid a block

#pragma unroll
  for (float& sum : sums) sum = 0;
  float next_low = *of_low, next_high = *of_high;
  float b_scales[kBlocksN] = {};  // lane l has those of block k / 32 * 32 + l
  for (int k = 0; k < k_blocks; ++k) {
    const float low = next_low, high = next_high;
    if (k % 32 == 0)
#pragma unroll
      for (int i = 0; i < kBlocksN; ++i) b_scales[i] = k + lane < k_blocks ? of_b[i][k + lane] : 0;
    const int stage = ring.wait();
    // The next block's scales arrive while this one is multiplied.
    if (k + 1 < k_blocks) {
      next_low  = of_low[(k + 1) * a_stride];
      next_high = of_high[(k + 1) * a_stride];
    }
    float of_blocks[kBlocksN];
#pragma unroll
    for (int i = 0; i < kBlocksN; ++i) of_blocks[i] = __shfl_sync(~0u, b_scales[i], k % 32);

    const uint64_t a = ptx::advance_descriptor(ring.a, stage * S::kABytes);
    const uint64_t b = ptx::advance_descriptor(ring.b, stage * S::kBBytes);
#pragma unroll
    for (int part = 0; part < S::kTileN / S::kPartN; ++part) {
      float partial[S::kPartN / 2];
      ptx::warpgroup_fence_operand(partial);
      ptx::wgmma_fence();
#pragma unroll
      for (int s = 0; s < 4; ++s)
        S::Format::wgmma(partial, ptx::advance_descriptor(a, 32 * s),
                         ptx::advance_descriptor(b, part * S::kPartN * 128 + 32 * s), s > 0);
      ptx::wgmma_commit_group();
      ptx::warpgroup_fence_operand(partial);
      ptx::wgmma_wait_group<0>();
      ptx::warpgroup_fence_operand(partial);
      if (part == S::kTileN / S::kPartN - 1) ring.release(stage);
#pragma unroll
      for (int group = 0; group < S::kPartN / 64; ++group) {
        const int q = part * S::kPartN / 64 + group;  // 64 columns
        const float of_block =
            q % 2 == 1 && amid ? of_blocks[min(q / 2 + 1, kBlocksN - 1)] : of_blocks[q / 2];
        const float scale[2] = {low * of_block, high * of_block};
#pragma unroll
        for (int i = 0; i < 32; ++i)
          sums[32 * q + i] = fmaf(partial[32 * group + i], scale[i / 2 % 2], sums[32 * q + i]);
      }
    }
  }
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    gemm_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                const __grid_constant__ CUtensorMap d, int k_blocks, TileOrder order,
                typename S::Scales scales) {
  extern __shared__ __align__(1024) uint8_t a_stages[];
  uint8_t* const b_stages = a_stages + S::kStages * S::kABytes;
  uint8_t* const boxes    = b_stages + S::kStages * S::kBBytes;
  uint64_t* const full    = reinterpret_cast<uint64_t*>(boxes + S::kConsumers * S::kBoxes * S::kBoxBytes);
  uint64_t* const empty   = full + S::kStages;

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

  if (warpgroup == S::kConsumers) {
    ptx::setmaxnreg_dec<S::kProducerRegisters>();
    if (threadIdx.x != S::kConsumers * 128) return;
    ptx::prefetch_tensormap(&a);
    ptx::prefetch_tensormap(&b);
    constexpr int kPartRows = S::kTileN / S::kCluster;
    PipelineState<S::kStages> state;
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
  const bool leader     = threadIdx.x % 128 == 0;
  const uint32_t box_at = ptx::shared_address(boxes) + warpgroup * S::kBoxes * S::kBoxBytes;
  const uint32_t a_at   = __shfl_sync(~0u, ptx::shared_address(a_stages) + warpgroup * (64 * 128), 0);
  // Thread r of a warpgroup tells CTA r of the cluster when a stage is free.
  Ring<S> ring{.full     = ptx::shared_address(full),
               .a        = ptx::smem_descriptor_128b(a_at),
               .b        = ptx::smem_descriptor_128b(__shfl_sync(~0u, ptx::shared_address(b_stages), 0)),
               .released = S::kCluster > 1 ? ptx::mapa_shared_cluster(ptx::shared_address(empty),
                                                                      threadIdx.x % S::kCluster)
                                           : ptx::shared_address(empty),
               .releases = threadIdx.x % 128 < S::kCluster};

  float sums[S::kTileN / 2];
  int stored = 0;  // boxes
  for (int i = blockIdx.x / S::kCluster; i < order.count(); i += step) {
    const int row    = (order.row(i) * S::kCluster + rank) * S::kTileM + warpgroup * 64;
    const int column = order.column(i) * S::kTileN;
    if constexpr (std::is_same_v<typename S::Format, E4m3Blocks>)
      multiply_and_promote<S>(ring, k_blocks, scales, row, column, sums);
    else
      multiply<S>(ring, k_blocks, sums);
    if constexpr (std::is_same_v<typename S::Format, E4m3>)
#pragma unroll
      for (float& sum : sums) sum *= scales.both;

#pragma unroll
    for (int box = 0; box < S::kTileN / S::kBoxN; ++box, ++stored) {
      const int turn = stored % S::kBoxes;
      // TMA has read what this box held before; only the leader can know.
      if (leader) ptx::cp_async_bulk_wait_group_read<S::kBoxes - 1>();
      ptx::bar_sync(1 + warpgroup, 128);
      write_box<typename S::Output, S::kBoxN>(box_at + turn * S::kBoxBytes, sums, box);
      ptx::fence_proxy_async();
      ptx::bar_sync(1 + warpgroup, 128);  // all of the box is written
      if (leader) {
        ptx::cp_async_bulk_tensor_store(&d, row, column + box * S::kBoxN,
                                        boxes + (warpgroup * S::kBoxes + turn) * S::kBoxBytes);
        ptx::cp_async_bulk_commit_group();
      }
    }
  }
  // Shared memory must outlive the copies that read it.
  if (leader) ptx::cp_async_bulk_wait_group_read<0>();
}

// `group`: rows of clusters that are in work at the same time (TileOrder).
template <class S>
void launch(View<const typename S::Element, 2> a, View<const typename S::Element, 2> b,
            View<typename S::Output, 2> d, typename S::Scales scales, StreamRef stream,
            int group = 16 / S::kCluster) {
  const auto map_of = [](const auto* data, int64_t rows, int64_t columns, int box_rows, int box_columns,
                         bool to_tf32) {
    constexpr int kBytes = sizeof *data;
    return tensor_map(data, dtype_of<std::remove_cvref_t<decltype(*data)>>, rows, columns, kBytes * columns,
                      box_rows, box_columns, box_columns * kBytes == 128 ? Swizzle::bytes_128 : Swizzle::none,
                      to_tf32);
  };
  constexpr bool kTf32 = std::is_same_v<typename S::Format, Tf32>;
  const int64_t m = a.extent(0), n = b.extent(0), k = a.extent(1);
  const auto clusters_m = static_cast<int>(blocks_for(m, S::kTileM * S::kCluster));
  const TileOrder order{clusters_m, static_cast<int>(blocks_for(n, S::kTileN)), group};
  const int clusters = std::min(order.count(), multiprocessors() / S::kCluster);
  allow_shared_memory_once<gemm_kernel<S>>(S::kSharedBytes);
  launch_with_pdl(gemm_kernel<S>, dim3(static_cast<unsigned>(clusters * S::kCluster)), dim3(S::kThreads),
                  S::kSharedBytes, S::kCluster, stream, map_of(a.data(), m, k, S::kTileM, S::kTileK, kTf32),
                  map_of(b.data(), n, k, S::kTileN / S::kCluster, S::kTileK, kTf32),
                  map_of(d.data(), m, n, 64, S::kBoxN, false), static_cast<int>(blocks_for(k, S::kTileK)),
                  order, scales);
}

}  // namespace fathom::kernels::gemm_sm90
