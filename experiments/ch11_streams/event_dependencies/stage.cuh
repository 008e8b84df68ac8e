// A stage of a branch, and the sum over the branches.
#pragma once

#include "branches.h"
#include "experiments/ch11_streams/leaky_integrator.cuh"

namespace fathom::lab::event_dependencies {

inline void run_stage(const Branches& p, int branch, int stage, StreamRef stream) {
  const float* from = stage == 0 ? &p.in(branch, 0) : &p.after_stage(stage - 1, branch, 0);
  leaky_integrator::integrate(from, &p.after_stage(stage, branch, 0), p.n(), p.steps_of(branch, stage),
                              stream);
}

static __global__ void sum_branches_kernel(View<const float, 2> of_branch, View<float, 1> out) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= out.extent(0)) return;
  float sum = 0;
#pragma unroll
  for (int b = 0; b < kBranches; ++b) sum += of_branch(b, i);
  out(i) = sum;
}

inline void sum_branches(const Branches& p, StreamRef stream) {
  constexpr int kThreads = 256;
  const View<const float, 2> last(&p.after_stage(kStages - 1, 0, 0), {kBranches, p.n()});
  sum_branches_kernel<<<blocks_for(p.n(), kThreads), kThreads, 0, stream>>>(last, p.out);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::event_dependencies
