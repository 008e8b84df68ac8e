// out = a b^T                 m x n, k deep, bf16
//
// bytes   2 (m k + n k + m n) at least
// flops   2 m n k
// limit   tensor cores of Blackwell (sm_100a)
// idea    two CTAs on neighbouring multiprocessors multiply 256 x 256 together: each loads half of both
//         blocks, and one thread of the pair issues tcgen05.mma. Sums lie in tensor memory, twice, so that
//         three things overlap: TMA loads blocks, the tensor cores multiply one tile, and four warps store
//         the tile before
#include <algorithm>

#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/tcgen05.cuh"
#include "cuda/tensor_map.h"
#include "kernels/gemm/pipeline_state.cuh"
#include "kernels/gemm/tile_order.cuh"
#include "rungs.h"
#include "tcgen05_pair.h"

namespace fathom::lab::matmul {
namespace {

using kernels::PipelineState, kernels::TileOrder;

using namespace tcgen05_pair;

constexpr int kStages = 6, kSharedBytes = kStages * kStageBytes;
constexpr int kStorerWarps = 4, kThreads = 32 * (2 + kStorerWarps);

__global__ void __launch_bounds__(kThreads, 1)
    tcgen05_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, bf16* out,
                   int m, int n, int blocks, TileOrder order) {
  extern __shared__ __align__(1024) uint8_t stages[];
  // full and free_sums are used in the first CTA of the pair alone.
  __shared__ uint64_t full[kStages], empty[kStages], ready_sums[kAccumulators], free_sums[kAccumulators];
  __shared__ uint32_t tensor_memory;
  const int rank = ptx::cluster_ctarank(), warp = threadIdx.x / 32, pairs = gridDim.x / 2;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      ptx::mbarrier_init(&full[s], 1);
      ptx::mbarrier_init(&empty[s], 1);
    }
    for (int s = 0; s < kAccumulators; ++s) {
      ptx::mbarrier_init(&ready_sums[s], 1);
      ptx::mbarrier_init(&free_sums[s], 2 * kStorerWarps);
    }
    ptx::fence_mbarrier_init();
  }
  if (warp == 1) {
    ptx::tcgen05_alloc(&tensor_memory, kColumns);
    ptx::tcgen05_relinquish_alloc_permit();
  }
  ptx::tcgen05_fence_before_thread_sync();
  // Barriers and tensor memory of both CTAs are there before either uses the other's.
  ptx::cluster_barrier_arrive();
  ptx::cluster_barrier_wait();
  ptx::tcgen05_fence_after_thread_sync();

  if (warp == 0 && threadIdx.x == 0) {  // loads this CTA's half of each block; the first CTA counts both
    PipelineState<kStages> state;
    for (int tile = blockIdx.x / 2; tile < order.count(); tile += pairs) {
      const int row    = first_row_of_a(order.row(tile), rank);
      const int column = first_row_of_b(order.column(tile), rank);
      for (int block = 0; block < blocks; ++block, state.next()) {
        ptx::mbarrier_wait(&empty[state.stage], state.parity ^ 1);
        if (rank == 0) ptx::mbarrier_arrive_expect_tx(&full[state.stage], 2 * kStageBytes);
        const uint32_t barrier = ptx::mapa_shared_cluster(ptx::shared_address(&full[state.stage]), 0);
        uint8_t* const to      = stages + state.stage * kStageBytes;
        ptx::cp_async_bulk_tensor_load_pair(to, &a, row, block * kTileK, barrier);
        ptx::cp_async_bulk_tensor_load_pair(to + kHalfBytes, &b, column, block * kTileK, barrier);
      }
    }
  } else if (warp == 1 && rank == 0 && threadIdx.x % 32 == 0) {  // multiplies, for both CTAs
    PipelineState<kStages> state;
    PipelineState<kAccumulators> sums;
    for (int tile = blockIdx.x / 2; tile < order.count(); tile += pairs, sums.next()) {
      ptx::mbarrier_wait(&free_sums[sums.stage], sums.parity ^ 1);
      ptx::tcgen05_fence_after_thread_sync();
      const uint32_t to = sums_at(tensor_memory, sums.stage);
      for (int block = 0; block < blocks; ++block, state.next()) {
        ptx::mbarrier_wait(&full[state.stage], state.parity);
        ptx::tcgen05_fence_after_thread_sync();
        const uint32_t at = ptx::shared_address(stages + state.stage * kStageBytes);
#pragma unroll
        for (int step = 0; step < kSteps; ++step)
          ptx::tcgen05_mma(to, descriptor_of_a(at, step), descriptor_of_b(at, step), kInstruction,
                           block > 0 || step > 0);
        ptx::tcgen05_commit(&empty[state.stage], 0b11);
      }
      ptx::tcgen05_commit(&ready_sums[sums.stage], 0b11);
    }
  } else if (warp >= 2) {  // stores: a thread has a row, a warp the 32 lanes that the hardware lets it read
    const int lane = threadIdx.x % 32;
    PipelineState<kAccumulators> sums;
    for (int tile = blockIdx.x / 2; tile < order.count(); tile += pairs, sums.next()) {
      ptx::mbarrier_wait(&ready_sums[sums.stage], sums.parity);
      ptx::tcgen05_fence_after_thread_sync();
      const int row = stored_row(order.row(tile), rank, warp, lane);
      for (int part = 0; part < kTileN; part += kPart) {
        uint32_t v[kPart];
        ptx::tcgen05_ld_32x32b_x32(v, part_at(tensor_memory, sums.stage, warp, part));
        ptx::tcgen05_wait_ld();
        const int column = order.column(tile) * kTileN + part;
#pragma unroll
        for (int i = 0; i < kPart; i += 8)  // n is a multiple of 8
          if (row < m && column + i < n)
            *reinterpret_cast<uint4*>(&out[int64_t{row} * n + column + i]) = {
                pack_bf16x2(__uint_as_float(v[i]), __uint_as_float(v[i + 1])),
                pack_bf16x2(__uint_as_float(v[i + 2]), __uint_as_float(v[i + 3])),
                pack_bf16x2(__uint_as_float(v[i + 4]), __uint_as_float(v[i + 5])),
                pack_bf16x2(__uint_as_float(v[i + 6]), __uint_as_float(v[i + 7]))};
      }
      ptx::tcgen05_fence_before_thread_sync();
      __syncwarp();
      if (lane == 0)
        ptx::mbarrier_arrive_cluster(
            ptx::mapa_shared_cluster(ptx::shared_address(&free_sums[sums.stage]), 0));
    }
  }

  // No CTA leaves while the other's products read its shared memory, or arrive here.
  __syncwarp();
  ptx::tcgen05_fence_before_thread_sync();
  ptx::cluster_barrier_arrive();
  ptx::cluster_barrier_wait();
  ptx::tcgen05_fence_after_thread_sync();
  if (warp == 1) ptx::tcgen05_dealloc(tensor_memory, kColumns);
}

}  // namespace

void tcgen05(const Gemm& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  allow_shared_memory_once<tcgen05_kernel>(kSharedBytes);
  const TileOrder order{static_cast<int>(blocks_for(p.m, kTileM)), static_cast<int>(blocks_for(p.n, kTileN)),
                        8};
  const int pairs = std::min(order.count(), multiprocessors() / 2);
  launch_in_clusters(
      tcgen05_kernel, dim3(static_cast<unsigned>(2 * pairs)), dim3(kThreads), kSharedBytes, 2, stream,
      tensor_map(p.a.data(), DType::bf16, p.m, p.k, 2 * p.k, kHalfRows, kTileK, Swizzle::bytes_128),
      tensor_map(p.b.data(), DType::bf16, p.n, p.k, 2 * p.k, kHalfRows, kTileK, Swizzle::bytes_128),
      p.out.data(), static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(blocks_for(p.k, kTileK)),
      order);
}

}  // namespace fathom::lab::matmul
