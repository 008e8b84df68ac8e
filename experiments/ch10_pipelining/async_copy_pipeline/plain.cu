// out(t, r) = sum_d x(t, d) a(d, r)         T tokens, D numbers each, rank 16, fp32
//
// bytes   4 T D of x, once, and 64 T of the result; from L2 also a for each 128 tokens, an eighth of x
// flops   32 T D
// limit   DRAM bandwidth. H200: 262144 tokens of 1024 are 1.09 GB, 0.27 ms at the 3.98 TB/s of a copy
// idea    baseline: a step is loaded into registers, stored to shared memory and, after a barrier,
//         multiplied. A block has one step at a time; while it waits for its loads, the other blocks of
//         the multiprocessor multiply
#include "tile.cuh"

namespace fathom::lab::async_copy_pipeline {
namespace {

__global__ void __launch_bounds__(kThreads) plain_kernel(const Shape s) {
  __shared__ alignas(16) Stage stage;
  float sums[kRank] = {};
  for (int step = 0; step < s.steps; ++step) {
    float4 loaded[kVectors];  // all in flight before the first is stored
    for_own_vectors(s, step, stage, [&](int i, float*, const float* from) {
      loaded[i] = from ? *reinterpret_cast<const float4*>(from) : float4{};
    });
    __syncthreads();  // all threads have multiplied the last step, whose place is overwritten
    for_own_vectors(s, step, stage,
                    [&](int i, float* to, const float*) { *reinterpret_cast<float4*>(to) = loaded[i]; });
    __syncthreads();  // the step is complete before any thread reads
    multiply_stage(stage, sums);
  }
  store_sums(s, sums);
}

}  // namespace

void plain(const LoraShrink& p, StreamRef stream) {
  const Shape s(p);
  if (s.tokens == 0) return;
  plain_kernel<<<s.blocks(), kThreads, 0, stream>>>(s);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::async_copy_pipeline
