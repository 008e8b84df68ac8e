// A block's slice of a row, which TMA brings into shared memory.
#pragma once

#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"
#include "experiments/ch10_pipelining/rms_norm.cuh"
#include "split_rows.h"

namespace fathom::lab::cluster_reduction {

// What the kernels take.
struct Slices {
  const float* in;
  float* out;
  float* partial;
  int width, slice, cluster;

  Slices(const SplitRows& p)
      : in(p.in.data()),
        out(p.out.data()),
        partial(p.partial.data()),
        width(static_cast<int>(p.width())),
        slice(static_cast<int>(p.slice())),
        cluster(static_cast<int>(p.cluster)) {}

  // Clusters consist of consecutive blocks, so the block's rank in its cluster is its slice of the row.
  __device__ int rank() const { return static_cast<int>(blockIdx.x) % cluster; }
  __device__ int row() const { return static_cast<int>(blockIdx.x) / cluster; }
  __device__ int64_t first() const { return int64_t{row()} * width + rank() * slice; }
  __device__ int count() const { return max(min(slice, width - rank() * slice), 0); }
};

// The block's slice in shared memory, and the sum of its squares. Called by all threads.
__device__ inline float load_and_sum(const Slices& s, float* row, float (&of_warp)[kThreads / 32]) {
  __shared__ uint64_t arrived;
  const int count = s.count(), bytes = count * static_cast<int>(sizeof(float));
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&arrived, 1);
    ptx::fence_proxy_async();  // TMA sees the barrier
    ptx::mbarrier_arrive_expect_tx(&arrived, bytes);
    if (bytes > 0) ptx::cp_async_bulk_load(row, s.in + s.first(), bytes, &arrived);
  }
  __syncthreads();  // all threads see the barrier
  ptx::mbarrier_wait(&arrived, 0);
  return rms_norm::block_sum<kThreads>(rms_norm::sum_squares<kThreads>(row, count), of_warp);
}

// One block for each slice of each row, the blocks of a row in a cluster.
template <auto* kKernel>
void launch_slices(const SplitRows& p, StreamRef stream) {
  FATHOM_EXPECT(p.slice() <= kMaxSlice, "a slice is larger than a block's shared memory");
  FATHOM_EXPECT(p.rows() * p.cluster <= INT32_MAX, "the kernel counts blocks in 32 bits");
  if (p.rows() == 0) return;
  allow_shared_memory_once<kKernel>(kMaxSlice * static_cast<int>(sizeof(float)));
  launch_in_clusters(kKernel, dim3(static_cast<unsigned>(p.rows() * p.cluster)), dim3(kThreads),
                     static_cast<size_t>(p.slice()) * sizeof(float), static_cast<int>(p.cluster), stream,
                     Slices(p));
}

}  // namespace fathom::lab::cluster_reduction
