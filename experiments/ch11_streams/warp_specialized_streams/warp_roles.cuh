// The kernel with roles: a warp that loads, a warp that stores, and eight that compute. The two pipelines
// hand stages on by mbarriers, so that no warp waits for a stage it has no part in.
#pragma once

#include "half_rows.cuh"

namespace fathom::lab::warp_specialized_streams {

inline constexpr int kComputeWarps = 8, kComputeThreads = 32 * kComputeWarps;
inline constexpr int kRolesThreads = kComputeThreads + 64;  // loader and storer

static __global__ void __launch_bounds__(kRolesThreads) warp_roles_kernel(const HalfRows h) {
  extern __shared__ __align__(128) float stages[];
  __shared__ Exchange exchange;
  // Of the pipeline in: full by TMA, empty by the compute warps. Of the pipeline out: ready by the compute
  // threads, stored by the storer.
  __shared__ uint64_t full[kStages], empty[kStages], ready[kStages], stored[kStages];
  __shared__ float of_warp[2][kComputeWarps];
  float *const arriving = stages, *const leaving = stages + kStages * kMaxHalf;
  const int t = threadIdx.x, warp = t / 32, count = h.count();

  if (t == 0) {
    for (int s = 0; s < kStages; ++s) {
      ptx::mbarrier_init(&full[s], 1);
      ptx::mbarrier_init(&empty[s], kComputeWarps);
      ptx::mbarrier_init(&ready[s], kComputeThreads);
      ptx::mbarrier_init(&stored[s], 1);
    }
    exchange.init();
    ptx::fence_mbarrier_init();  // the other CTA sees the barriers after the cluster barrier
    ptx::fence_proxy_async();    // and TMA sees them
  }
  __syncwarp();  // the barrier wants the warp together
  ptx::cluster_barrier_arrive();
  ptx::cluster_barrier_wait();  // the barriers of both CTAs are ready, also for the other threads of this one

  if (warp == kComputeWarps) {  // the loader
    if (t % 32 != 0) return;
    for (int i = 0; i < count; ++i) {
      const int s = i % kStages;
      if (i >= kStages) ptx::mbarrier_wait(&empty[s], phase_of(i - kStages));
      ptx::mbarrier_arrive_expect_tx(&full[s], h.bytes());
      ptx::cp_async_bulk_load(stage_of(arriving, i), h.in + h.offset(i), h.bytes(), &full[s]);
    }
  } else if (warp == kComputeWarps + 1) {  // the storer
    if (t % 32 != 0) return;
    for (int i = 0; i < count; ++i) {
      ptx::mbarrier_wait(&ready[i % kStages], phase_of(i));
      ptx::cp_async_bulk_store(h.out + h.offset(i), stage_of(leaving, i), h.bytes());
      ptx::cp_async_bulk_commit_group();
      // TMA has read the stage: it may be overwritten, and after the last row the CTA may end.
      ptx::cp_async_bulk_wait_group_read<0>();
      ptx::mbarrier_arrive(&stored[i % kStages]);
    }
  } else {
    for (int i = 0; i < count; ++i) {
      const int s      = i % kStages;
      const float *row = stage_of(arriving, i);
      ptx::mbarrier_wait(&full[s], phase_of(i));
      const float of_own_warp = warp_reduce_sum(own_squares(row, h.half(), t, kComputeThreads));
      if (t % 32 == 0) of_warp[i % 2][warp] = of_own_warp;
      // of_warp is complete. It has two places, so that a warp may be a row ahead of one that still reads.
      ptx::bar_sync(1, kComputeThreads);
      const float own = warp_reduce_sum(t % 32 < kComputeWarps ? of_warp[i % 2][t % 32] : 0);
      if (t == 0) exchange.send(i, own, 1 - h.rank());
      const float scale = scale_for(own + exchange.receive(i), h.width);

      if (i >= kStages) ptx::mbarrier_wait(&stored[s], phase_of(i - kStages));
      scale_own(row, stage_of(leaving, i), h.half(), t, kComputeThreads, scale);
      ptx::fence_proxy_async();  // TMA sees this thread's part of the row
      ptx::mbarrier_arrive(&ready[s]);
      __syncwarp();
      if (t % 32 == 0) ptx::mbarrier_arrive(&empty[s]);  // the warp has left the stage
    }
    // The CTA has received the last of the other's sums, so nobody accesses its memory any more.
  }
}

}  // namespace fathom::lab::warp_specialized_streams
