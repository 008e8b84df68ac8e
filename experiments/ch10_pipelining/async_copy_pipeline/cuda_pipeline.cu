// out(t, r) = sum_d x(t, d) a(d, r)         T tokens, D numbers each, rank 16, fp32
//
// bytes   4 T D of x, once, and 64 T of the result; from L2 also a for each 128 tokens, an eighth of x
// flops   32 T D
// limit   DRAM bandwidth. H200: 262144 tokens of 1024 are 1.09 GB, 0.27 ms at the 3.98 TB/s of a copy
// idea    cuda::pipeline of libcu++. All threads are producers and consumers: a producer acquires a stage,
//         which all threads have released, copies its part (cuda::memcpy_async) and commits; a consumer
//         waits for the commits of all threads and releases. The library counts stages and phases
#include <cooperative_groups.h>

#include <cuda/pipeline>

#include "cuda/launch.cuh"
#include "tile.cuh"

namespace fathom::lab::async_copy_pipeline {
namespace {

template <int kStages>
__global__ void __launch_bounds__(kThreads) cuda_pipeline_kernel(const Shape s) {
  extern __shared__ __align__(1024) unsigned char memory[];
  using State = cuda::pipeline_shared_state<cuda::thread_scope_block, kStages>;
  __shared__ alignas(State) unsigned char state[sizeof(State)];  // make_pipeline initialises it
  auto* const stages = reinterpret_cast<Stage*>(memory);
  auto pipeline =
      cuda::make_pipeline(cooperative_groups::this_thread_block(), reinterpret_cast<State*>(state));

  float sums[kRank] = {};
  for (int step = 0, next = 0; step < s.steps; ++step) {
    for (; next < min(step + kStages, s.steps); ++next) {
      pipeline.producer_acquire();
      for_own_vectors(s, next, stages[next % kStages], [&](int, float* to, const float* from) {
        if (from)
          cuda::memcpy_async(to, from, cuda::aligned_size_t<16>(16), pipeline);
        else
          *reinterpret_cast<float4*>(to) = {};  // the commit below releases ordinary stores as well
      });
      pipeline.producer_commit();
    }
    pipeline.consumer_wait();
    multiply_stage(stages[step % kStages], sums);
    pipeline.consumer_release();
  }
  store_sums(s, sums);
}

template <int kStages>
void launch(const Shape& s, StreamRef stream) {
  constexpr int kBytes = kStages * static_cast<int>(sizeof(Stage));
  allow_shared_memory_once<cuda_pipeline_kernel<kStages>>(kBytes);
  cuda_pipeline_kernel<kStages><<<s.blocks(), kThreads, kBytes, stream>>>(s);
  FATHOM_LAUNCHED();
}

}  // namespace

void cuda_pipeline(const LoraShrink& p, StreamRef stream) {
  const Shape s(p);
  if (s.tokens == 0) return;
  if (p.stages == 2) return launch<2>(s, stream);
  if (p.stages == 3) return launch<3>(s, stream);
  FATHOM_EXPECT(p.stages == 4, "a pipeline has 2, 3 or 4 stages");
  launch<4>(s, stream);
}

}  // namespace fathom::lab::async_copy_pipeline
