// out = a b^T                 m x n, k deep, bf16
//
// bytes   2 (m k + n k + m n) at least
// flops   2 m n k
// limit   tensor cores. H200: 989 TFLOP/s at 1.83 GHz
// idea    ping_pong with tiles as wide as fills the last wave best, and clusters of two CTAs that share the
//         blocks of b by multicast. A warpgroup has a tile of its own, so that any multiple of 16 columns
//         will do: at 4096, tiles of 128 x 112 make 8.97 waves, where 128 x 128 make 7.76 of 8. cuBLASLt's
//         fastest kernels are of this kind
#include <algorithm>

#include "cuda/bf16_pack.cuh"
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

constexpr int kTileM = 128, kHalves = kTileM / 64;  // 64 rows are a wgmma
constexpr int kCluster = 2, kConsumers = 2, kThreads = 128 * (kConsumers + 1);
constexpr int kTurn = 1 + kConsumers;  // named barriers: a warpgroup's turn at the tensor cores

template <int kTileN_>
struct Shape {
  static constexpr int kTileN  = kTileN_;
  static constexpr int kABytes = kTileM * kDepth * 2, kBBytes = kTileN * kDepth * 2;
  static constexpr int kBoxBytes    = 64 * kTileN * 2;  // one for each warpgroup, rows without gaps
  static constexpr int kStages      = (232448 - kConsumers * kBoxBytes) / (kABytes + kBBytes + 16);
  static constexpr int kSharedBytes = kStages * (kABytes + kBBytes) + kConsumers * kBoxBytes;
  static_assert(kSharedBytes + 16 * kStages <= 232448);  // a stage has two barriers
};

// bf16 of a warpgroup's 64 rows of sums, without a swizzle: two or four ways of bank conflicts, while the
// other warpgroup multiplies.
template <int kSums>
__device__ void write_rows(uint32_t to, const float (&sums)[kSums]) {
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane % 16;
  const uint32_t at = to + row * (4 * kSums) + lane / 16 * 16;
#pragma unroll
  for (int pair = 0; pair < kSums / 8; ++pair) {  // 16 columns
    uint32_t packed[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) packed[i] = pack_bf16x2(sums[8 * pair + 2 * i], sums[8 * pair + 2 * i + 1]);
    ptx::stmatrix_x4(at + pair * 32, packed);
  }
}

template <class S>
__global__ void __launch_bounds__(kThreads, 1)
    full_waves_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                      const __grid_constant__ CUtensorMap out, int blocks, TileOrder order) {
  constexpr int kStages = S::kStages;
  extern __shared__ __align__(1024) uint8_t a_stages[];
  __shared__ uint64_t full[kStages], empty[kStages];
  uint8_t* const b_stages = a_stages + kStages * S::kABytes;
  if (threadIdx.x == 0) {
    for (uint64_t& barrier : full) ptx::mbarrier_init(&barrier, 1);
    for (uint64_t& barrier : empty) ptx::mbarrier_init(&barrier, kCluster);  // a warpgroup of each CTA
    ptx::fence_mbarrier_init();
  }
  // No CTA arrives on, or copies to, another one before that has its barriers.
  ptx::cluster_barrier_arrive();
  ptx::cluster_barrier_wait();

  const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0), rank = ptx::cluster_ctarank();
  const int first = blockIdx.x / kCluster, step = gridDim.x / kCluster;
  if (warpgroup == kConsumers) {
    ptx::setmaxnreg_dec<40>();
    if (threadIdx.x != kConsumers * 128) return;
    constexpr int kPartRows = S::kTileN / kCluster;
    PipelineState<kStages> state;
    for (int tile = first; tile < order.count(); tile += step) {
      const int row    = (order.row(tile) * kCluster + rank) * kTileM;
      const int column = order.column(tile) * S::kTileN + rank * kPartRows;
      for (int block = 0; block < blocks; ++block, state.next()) {
        uint8_t* const part  = b_stages + state.stage * S::kBBytes + rank * kPartRows * kDepth * 2;
        uint64_t* const done = &full[state.stage];
        ptx::mbarrier_wait(&empty[state.stage], state.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(done, S::kABytes + S::kBBytes);
        ptx::cp_async_bulk_tensor_load(a_stages + state.stage * S::kABytes, &a, row, block * kDepth, done);
        ptx::cp_async_bulk_tensor_load_multicast(part, &b, column, block * kDepth, done, (1 << kCluster) - 1);
      }
    }
    // The other CTA may still arrive here. This one exits when all its stages have been released by both.
    for (int s = 0; s < kStages; ++s, state.next()) ptx::mbarrier_wait(&empty[state.stage], state.parity ^ 1);
    return;
  }

  ptx::setmaxnreg_inc<232>();
  const bool leader   = threadIdx.x % 128 == 0;
  const uint64_t of_a = ptx::smem_descriptor_128b(__shfl_sync(~0u, ptx::shared_address(a_stages), 0));
  const uint64_t of_b = ptx::smem_descriptor_128b(__shfl_sync(~0u, ptx::shared_address(b_stages), 0));
  uint8_t* const box  = b_stages + kStages * S::kBBytes + warpgroup * S::kBoxBytes;
  // Thread r of a warpgroup tells CTA r of the cluster when a stage is free.
  const uint32_t released = ptx::mapa_shared_cluster(ptx::shared_address(empty), threadIdx.x % kCluster);
  const auto release      = [&](int stage) {
    if (threadIdx.x % 128 < kCluster) ptx::mbarrier_arrive_cluster(released + stage * 8);
  };
  float sums[kHalves][S::kTileN / 2];
  // Of this CTA's tiles, warpgroup 0 has the even ones. The stages of the others pass by: `t` tiles are
  // before.
  for (int t = warpgroup, tile = first + t * step; tile < order.count(); t += 2, tile += 2 * step) {
    // Its turn: the other has started all products of the tile before, and waits for the last of them.
    if (t > 0) ptx::bar_sync(kTurn + warpgroup, kConsumers * 128);
    int before = -1;  // the stage whose products are in flight
    for (int block = t * blocks; block < (t + 1) * blocks; ++block) {
      ptx::mbarrier_wait(&full[block % kStages], block / kStages & 1);
      const int stage = __shfl_sync(~0u, block % kStages, 0);
#pragma unroll
      for (int half = 0; half < kHalves; ++half)
        start_products(ptx::advance_descriptor(of_a, stage * S::kABytes + half * 64 * kDepth * 2),
                       ptx::advance_descriptor(of_b, stage * S::kBBytes), sums[half], block > t * blocks);
      ptx::wgmma_wait_group<kHalves>();
      if (before >= 0) release(before);
      before = stage;
    }
    if (tile + step < order.count()) ptx::bar_arrive(kTurn + (1 - warpgroup), kConsumers * 128);
    ptx::wgmma_wait_group<0>();
    release(before);
    const int row = (order.row(tile) * kCluster + rank) * kTileM, column = order.column(tile) * S::kTileN;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      ptx::warpgroup_fence_operand(sums[half]);
      // TMA has read what the box held before; only the leader can know.
      if (leader) ptx::cp_async_bulk_wait_group_read<0>();
      ptx::bar_sync(1 + warpgroup, 128);
      write_rows(ptx::shared_address(box), sums[half]);
      ptx::fence_proxy_async();
      ptx::bar_sync(1 + warpgroup, 128);  // all of the box is written
      if (leader) {
        ptx::cp_async_bulk_tensor_store(&out, row + half * 64, column, box);
        ptx::cp_async_bulk_commit_group();
      }
    }
  }
  // Shared memory must outlive the copies that read it.
  if (leader) ptx::cp_async_bulk_wait_group_read<0>();
}

// Of the tiles of a product, in pairs.
template <class S>
TileOrder order_of(const Gemm& p) {
  return {static_cast<int>(blocks_for(p.m, kTileM * kCluster)), static_cast<int>(blocks_for(p.n, S::kTileN)),
          16 / kCluster};
}

// How long the multiprocessors take, in columns of out: the waves of tiles, each with what a tile costs
// beside its products.
template <class S>
int64_t columns_of_time(const Gemm& p) {
  constexpr int kCostOfTile = 8;
  const auto waves          = blocks_for(order_of<S>(p).count(), multiprocessors() / kCluster);
  return int64_t{waves} * (S::kTileN + kCostOfTile);
}

template <class S>
void launch(const Gemm& p, StreamRef stream) {
  const TileOrder order = order_of<S>(p);
  const int clusters    = std::min(order.count(), multiprocessors() / kCluster);
  allow_shared_memory_once<full_waves_kernel<S>>(S::kSharedBytes);
  launch_in_clusters(
      full_waves_kernel<S>, dim3(static_cast<unsigned>(clusters * kCluster)), dim3(kThreads), S::kSharedBytes,
      kCluster, stream,
      tensor_map(p.a.data(), DType::bf16, p.m, p.k, 2 * p.k, kTileM, kDepth, Swizzle::bytes_128),
      tensor_map(p.b.data(), DType::bf16, p.n, p.k, 2 * p.k, S::kTileN / kCluster, kDepth,
                 Swizzle::bytes_128),
      tensor_map(p.out.data(), DType::bf16, p.m, p.n, 2 * p.n, 64, S::kTileN),
      static_cast<int>(blocks_for(p.k, kDepth)), order);
}

}  // namespace

void full_waves(const Gemm& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  using Narrow         = Shape<112>;
  using Square         = Shape<128>;
  using Wide           = Shape<192>;
  const int64_t narrow = columns_of_time<Narrow>(p), square = columns_of_time<Square>(p),
                wide = columns_of_time<Wide>(p);
  if (wide <= std::min(narrow, square))
    launch<Wide>(p, stream);
  else if (square <= narrow)
    launch<Square>(p, stream);
  else
    launch<Narrow>(p, stream);
}

}  // namespace fathom::lab::matmul
