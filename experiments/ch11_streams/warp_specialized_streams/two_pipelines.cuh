// The kernel without roles: all warps wait for a half row, add, exchange, scale, and meet; one thread starts
// the copies in and out.
#pragma once

#include "half_rows.cuh"

namespace fathom::lab::warp_specialized_streams {

inline constexpr int kLegacyThreads = 256;

static __global__ void __launch_bounds__(kLegacyThreads) two_pipelines_kernel(const HalfRows h) {
  extern __shared__ __align__(128) float stages[];
  __shared__ Exchange exchange;
  __shared__ uint64_t full[kStages];
  __shared__ float of_warp[kLegacyThreads / 32];
  float *const arriving = stages, *const leaving = stages + kStages * kMaxHalf;
  const int t = threadIdx.x, count = h.count();
  const auto load = [&](int i) {
    ptx::mbarrier_arrive_expect_tx(&full[i % kStages], h.bytes());
    ptx::cp_async_bulk_load(stage_of(arriving, i), h.in + h.offset(i), h.bytes(), &full[i % kStages]);
  };

  if (t == 0) {
    for (uint64_t& barrier : full) ptx::mbarrier_init(&barrier, 1);
    exchange.init();
    ptx::fence_mbarrier_init();  // the other CTA sees the barriers after the cluster barrier
    ptx::fence_proxy_async();    // and TMA sees them
    load(0);
  }
  __syncwarp();  // the barrier wants the warp together
  ptx::cluster_barrier_arrive();
  ptx::cluster_barrier_wait();  // the barriers of both CTAs are ready

  for (int i = 0; i < count; ++i) {
    // The stage of row i + 1 is free: all have left row i - 1 at the barrier below.
    if (t == 0 && i + 1 < count) load(i + 1);
    ptx::mbarrier_wait(&full[i % kStages], phase_of(i));

    const float* row = stage_of(arriving, i);
    const float warp = warp_reduce_sum(own_squares(row, h.half(), t, kLegacyThreads));
    if (t % 32 == 0) of_warp[t / 32] = warp;
    __syncthreads();  // of_warp is complete
    const float own = warp_reduce_sum(t % 32 < kLegacyThreads / 32 ? of_warp[t % 32] : 0);
    if (t == 0) {
      exchange.send(i, own, 1 - h.rank());
      ptx::cp_async_bulk_wait_group_read<kStages - 1>();  // row i - 2 has left the stage that row i will use
    }
    const float scale = scale_for(own + exchange.receive(i), h.width);
    __syncthreads();  // the stage to write is free; all have read of_warp

    scale_own(row, stage_of(leaving, i), h.half(), t, kLegacyThreads, scale);
    ptx::fence_proxy_async();  // TMA sees this thread's part of the row
    __syncthreads();           // the row is complete, and all have read it
    if (t == 0) {
      ptx::cp_async_bulk_store(h.out + h.offset(i), stage_of(leaving, i), h.bytes());
      ptx::cp_async_bulk_commit_group();
    }
  }
  // The CTA has received the last of the other's sums, so nobody accesses its memory any more.
  if (t == 0) ptx::cp_async_bulk_wait_group_read<0>();  // TMA has read the last rows
}

}  // namespace fathom::lab::warp_specialized_streams
