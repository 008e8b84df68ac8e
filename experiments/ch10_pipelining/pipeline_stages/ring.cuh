// One block on each multiprocessor walks over rows. TMA brings them into a ring of kStages rows in shared
// memory; the stage that a row leaves is filled with the row kStages later.
#pragma once

#include <algorithm>

#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/ptx.cuh"
#include "experiments/ch10_pipelining/rms_norm.cuh"
#include "rows.h"

namespace fathom::lab::pipeline_stages {

inline constexpr int kThreads = 256;

// As rms_norm::store_scaled, of which the compiler makes four stores of 4 bytes here where it unrolls the
// loop. The kernel never reads `out`, so the instruction does not say that it changes memory.
__device__ inline void store_scaled(const float* row, float scale, float* out, int count) {
  for (int i = 4 * threadIdx.x; i < count; i += 4 * kThreads) {
    const float4 v = *reinterpret_cast<const float4*>(row + i);
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(out + i), "f"(v.x * scale),
                 "f"(v.y * scale), "f"(v.z * scale), "f"(v.w * scale));
  }
}

template <int kStages>
__global__ void __launch_bounds__(kThreads) ring_kernel(const float* in, float* out, int rows, int width) {
  extern __shared__ __align__(128) float ring[];  // kStages rows
  __shared__ uint64_t full[kStages];
  __shared__ float of_warp[kThreads / 32];
  if (threadIdx.x == 0) {
    for (uint64_t& barrier : full) ptx::mbarrier_init(&barrier, 1);
    ptx::fence_proxy_async();  // TMA sees the barriers
  }
  __syncthreads();  // and so do the other threads

  // The block's r-th row is the (blockIdx.x + r * gridDim.x)-th of all. It lies in stage r % kStages, in that
  // stage's phase r / kStages.
  const int mine    = (rows - blockIdx.x + gridDim.x - 1) / gridDim.x;
  const auto offset = [&](int r) { return (blockIdx.x + int64_t{r} * gridDim.x) * width; };
  const auto load   = [&](int r) {  // by thread 0
    const int stage = r % kStages, bytes = width * static_cast<int>(sizeof(float));
    ptx::mbarrier_arrive_expect_tx(&full[stage], bytes);
    ptx::cp_async_bulk_load(ring + stage * width, in + offset(r), bytes, &full[stage]);
  };

  if (threadIdx.x == 0)
    for (int r = 0; r < min(kStages, mine); ++r) load(r);
  for (int r = 0; r < mine; ++r) {
    const int stage = r % kStages;
    const float* x  = ring + stage * width;
    ptx::mbarrier_wait(&full[stage], r / kStages & 1);  // the row has arrived
    const float squares = rms_norm::block_sum<kThreads>(rms_norm::sum_squares<kThreads>(x, width), of_warp);
    store_scaled(x, rms_norm::scale_of(squares, width), out + offset(r), width);
    __syncthreads();  // all threads have read the row and of_warp, which may be overwritten now
    if (threadIdx.x == 0 && r + kStages < mine) load(r + kStages);
  }
}

template <int kStages>
void launch_ring(const RmsNorm& p, StreamRef stream) {
  FATHOM_EXPECT(p.width() <= kMaxWidth && p.rows() <= INT32_MAX / 2, "a row is at most 8192 numbers");
  if (p.rows() == 0) return;
  constexpr int kMostBytes = kStages * kMaxWidth * static_cast<int>(sizeof(float));
  allow_shared_memory_once<ring_kernel<kStages>>(kMostBytes);
  // One block for each multiprocessor, so that only the ring hides latency.
  const auto grid = static_cast<unsigned>(std::min<int64_t>(p.rows(), multiprocessors()));
  ring_kernel<kStages><<<grid, kThreads, static_cast<size_t>(kStages * p.width() * 4), stream>>>(
      p.in.data(), p.out.data(), static_cast<int>(p.rows()), static_cast<int>(p.width()));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::pipeline_stages
