// One item, the persistent grid, and the queue. Only the order in which warps take items differs between
// variants.
#pragma once

#include "cuda/check.h"
#include "cuda/multiprocessors.h"
#include "cuda/warp_reduce.cuh"
#include "walks.h"

namespace fathom::lab::work_queue_gpu {

inline constexpr int kThreads = 256, kWarps = kThreads / 32;

// All 32 lanes call it. xorshift32 (Marsaglia 2003): six operations, each depends on the one before.
__device__ inline void walk_item(const Walks& p, int64_t i) {
  const int lane = threadIdx.x % 32;
  uint32_t x     = p.start(i) + lane;
  for (uint32_t steps = p.length(i); steps > 0; --steps) {
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
  }
  const uint32_t sum = warp_reduce_sum(x);
  if (lane == 0) p.out(i) = sum;
}

// As many blocks as are resident at once, and no more than there are items for.
template <auto* kKernel>
unsigned resident_blocks(int64_t items) {
  static PerDevice<int> of_multiprocessor;
  const int blocks  = of_multiprocessor.get([&] {
    int count = 0;
    FATHOM_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, kKernel, kThreads, 0));
    return count;
  });
  const auto needed = static_cast<int64_t>(blocks_for(items, kWarps));
  return static_cast<unsigned>(needed < blocks * multiprocessors() ? needed : blocks * multiprocessors());
}

// Each warp takes kBatch items from the counter until none is left. The counter ends at most kBatch for each
// warp beyond the number of items, far below 2^32.
template <int kBatch>
__global__ void __launch_bounds__(kThreads) queue_kernel(Walks p) {
  const uint32_t n = static_cast<uint32_t>(p.start.size());
  while (true) {
    uint32_t begin = 0;
    if (threadIdx.x % 32 == 0) begin = atomicAdd(p.next.data(), uint32_t{kBatch});
    begin = __shfl_sync(~0u, begin, 0);
    if (begin >= n) return;
    for (uint32_t i = begin; i < n && i < begin + kBatch; ++i) walk_item(p, i);
  }
}

template <int kBatch>
void launch_queue(const Walks& p, StreamRef stream) {
  if (p.start.size() == 0) return;
  FATHOM_CUDA(cudaMemsetAsync(p.next.data(), 0, sizeof(uint32_t), stream));
  queue_kernel<kBatch><<<resident_blocks<queue_kernel<kBatch>>(p.start.size()), kThreads, 0, stream>>>(p);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::work_queue_gpu
