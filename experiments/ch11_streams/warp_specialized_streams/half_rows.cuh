// What both kernels share. Two pipelines of two stages each: half rows that TMA brings into shared memory,
// and half rows on their way out. The CTAs of a cluster exchange their sums of squares through distributed
// shared memory.
#pragma once

#include "batches.h"
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"
#include "cuda/warp_reduce.cuh"

namespace fathom::lab::warp_specialized_streams {

inline constexpr int kStages = 2, kCluster = 2;
inline constexpr int kMaxHalf     = static_cast<int>(kMaxWidth) / kCluster;
inline constexpr int kSharedBytes = 2 * kStages * kMaxHalf * static_cast<int>(sizeof(float));

// The half rows of a CTA in one batch.
struct HalfRows {
  const float* in;
  float* out;
  int rows, width;  // of the batch

  __device__ int half() const { return width / kCluster; }
  __device__ int bytes() const { return half() * static_cast<int>(sizeof(float)); }
  __device__ int rank() const { return static_cast<int>(blockIdx.x) % kCluster; }
  __device__ int first_row() const { return static_cast<int>(blockIdx.x) / kCluster * kRowsOfCluster; }
  __device__ int count() const { return min(kRowsOfCluster, rows - first_row()); }  // the same in both CTAs
  __device__ int64_t offset(int i) const { return int64_t{first_row() + i} * width + rank() * half(); }
};

// A stage of either pipeline. The i-th half row is in stage i % kStages.
__device__ inline float* stage_of(float* pipeline, int i) { return pipeline + i % kStages * kMaxHalf; }
// That stage's phase.
__device__ inline uint32_t phase_of(int i) { return static_cast<uint32_t>(i / kStages) & 1; }

// The other CTA's sums, and the barrier on which they arrive: one for rows of even numbers, one for the
// others. The other CTA sends its sum of row i + 2 after it has received ours of row i + 1, which we send
// after all of our threads have read its sum of row i. So two places are enough.
struct Exchange {
  alignas(16) float4 sums[kStages];
  uint64_t arrived[kStages];

  __device__ void init() {
    for (uint64_t& barrier : arrived) ptx::mbarrier_init(&barrier, 1);
  }
  // Called by one thread of each CTA.
  __device__ void send(int i, float sum, int to_rank) {
    const int place = i % kStages;
    ptx::mbarrier_arrive_expect_tx(&arrived[place], sizeof(float4));  // for what the other CTA sends here
    ptx::st_async_v4(ptx::mapa_shared_cluster(ptx::shared_address(&sums[place]), to_rank), {sum, 0, 0, 0},
                     ptx::mapa_shared_cluster(ptx::shared_address(&arrived[place]), to_rank));
  }
  // Called by every thread that needs it.
  __device__ float receive(int i) const {
    ptx::mbarrier_wait(&arrived[i % kStages], phase_of(i));
    return sums[i % kStages].x;
  }
};

// Thread `t` of `threads` takes every `threads`-th vector of a half row.
__device__ inline float own_squares(const float* half_row, int count, int t, int threads) {
  float sum = 0;
  for (int i = 4 * t; i < count; i += 4 * threads) {
    const float4 v = *reinterpret_cast<const float4*>(half_row + i);
    sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
  return sum;
}
__device__ inline void scale_own(const float* from, float* to, int count, int t, int threads, float by) {
  for (int i = 4 * t; i < count; i += 4 * threads) {
    const float4 v                     = *reinterpret_cast<const float4*>(from + i);
    *reinterpret_cast<float4*>(to + i) = {v.x * by, v.y * by, v.z * by, v.w * by};
  }
}
__device__ inline float scale_for(float squares, int width) {
  return rsqrtf(squares / static_cast<float>(width) + kEpsilon);
}

template <auto* kKernel>
void launch_batch(const Batches& p, int64_t batch, int threads, StreamRef stream) {
  FATHOM_EXPECT(p.width() <= kMaxWidth, "a stage holds half a row of at most 16384 numbers");
  if (p.rows() == 0) return;
  allow_shared_memory_once<kKernel>(kSharedBytes);
  const HalfRows batch_rows{.in    = &p.in(batch, 0, 0),
                            .out   = &p.out(batch, 0, 0),
                            .rows  = static_cast<int>(p.rows()),
                            .width = static_cast<int>(p.width())};
  launch_in_clusters(kKernel, dim3(kCluster * blocks_for(p.rows(), kRowsOfCluster)),
                     dim3(static_cast<unsigned>(threads)), kSharedBytes, kCluster, stream, batch_rows);
}

}  // namespace fathom::lab::warp_specialized_streams
