// out(t, r) = sum_d x(t, d) a(d, r)         T tokens, D numbers each, rank 16, fp32
//
// bytes   4 T D of x, once, and 64 T of the result; from L2 also a for each 128 tokens, an eighth of x
// flops   32 T D
// limit   DRAM bandwidth. H200: 262144 tokens of 1024 are 1.09 GB, 0.27 ms at the 3.98 TB/s of a copy
// idea    a loop in three parts. The prologue starts the copies of the first steps (cp.async); in the steady
//         state each turn starts the copies of a later step and multiplies the oldest one; the epilogue
//         multiplies what is left. Only the steady state has both halves, so it needs no condition
#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"
#include "tile.cuh"

namespace fathom::lab::async_copy_pipeline {
namespace {

// fetch(n) issues the cp.async of step n into stage n % kStages, compute(n) uses it. Called by all threads of
// the block; each thread has a group of copies for each step.
template <int kStages, class Fetch, class Compute>
__device__ void run_pipelined(int steps, Fetch fetch, Compute compute) {
  constexpr int kAhead = kStages - 1;
  // Prologue. A group may be empty, so that groups count steps.
  for (int n = 0; n < kAhead; ++n) {
    if (n < steps) fetch(n);
    ptx::cp_async_commit_group();
  }
  // Steady state.
  const int steady = max(steps - kAhead, 0);
  for (int n = 0; n < steady; ++n) {
    ptx::cp_async_wait_group<kAhead - 1>();  // this thread's part of step n has arrived
    // All parts have, and all threads have used step n - 1, whose stage is filled next.
    __syncthreads();
    fetch(n + kAhead);
    ptx::cp_async_commit_group();
    compute(n);
  }
  // Epilogue.
  ptx::cp_async_wait_group<0>();
  __syncthreads();  // the last steps have arrived for all threads
  for (int n = steady; n < steps; ++n) compute(n);
}

template <int kStages>
__global__ void __launch_bounds__(kThreads) software_pipeline_kernel(const Shape s) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto* const stages = reinterpret_cast<Stage*>(memory);
  float sums[kRank]  = {};
  run_pipelined<kStages>(
      s.steps,
      [&](int step) {
        for_own_vectors(s, step, stages[step % kStages], [&](int, float* to, const float* from) {
          ptx::cp_async_cg(to, from ? from : s.x, from ? 16 : 0);
        });
      },
      [&](int step) { multiply_stage(stages[step % kStages], sums); });
  store_sums(s, sums);
}

template <int kStages>
void launch(const Shape& s, StreamRef stream) {
  constexpr int kBytes = kStages * static_cast<int>(sizeof(Stage));
  allow_shared_memory_once<software_pipeline_kernel<kStages>>(kBytes);
  software_pipeline_kernel<kStages><<<s.blocks(), kThreads, kBytes, stream>>>(s);
  FATHOM_LAUNCHED();
}

}  // namespace

void software_pipeline(const LoraShrink& p, StreamRef stream) {
  const Shape s(p);
  if (s.tokens == 0) return;
  if (p.stages == 2) return launch<2>(s, stream);
  if (p.stages == 3) return launch<3>(s, stream);
  FATHOM_EXPECT(p.stages == 4, "a pipeline has 2, 3 or 4 stages");
  launch<4>(s, stream);
}

}  // namespace fathom::lab::async_copy_pipeline
