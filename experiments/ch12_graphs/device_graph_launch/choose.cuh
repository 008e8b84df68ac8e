// The kernel that chooses the next graph. Variants differ in who is told.
#pragma once

#include "cuda/check.h"
#include "cuda/warp_reduce.cuh"
#include "dispatch.h"

namespace fathom::lab::device_graph_launch {

inline constexpr int kChoiceThreads = 1024;

// One block. `to` has, for thread 0:
//   void next(const Dispatch&, uint32_t tokens, int graph)    run that graph
//   void end()                                                after the last token
template <class To>
__global__ void __launch_bounds__(kChoiceThreads) choose_kernel(Dispatch p, To to) {
  __shared__ uint32_t warp_sums[kChoiceThreads / 32];
  uint32_t sum = 0;
  for (int i = threadIdx.x; i < kWidth; i += kChoiceThreads) sum += p.state(0, i);
  sum = warp_reduce_sum(sum);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
  __syncthreads();  // warp_sums is complete; nobody reads the state from here on
  if (threadIdx.x >= 32) return;
  const uint32_t token = warp_reduce_sum(warp_sums[threadIdx.x]);
  if (threadIdx.x > 0) return;
  const uint32_t before = p.count(0);
  p.tokens(before)      = token;
  p.count(0)            = before + 1;
  if (before < p.steps)
    to.next(p, before + 1, static_cast<int>(token % kGraphs));
  else
    to.end();
}

template <class To>
void launch_choose(const Dispatch& p, To to, StreamRef stream) {
  choose_kernel<<<1, kChoiceThreads, 0, stream>>>(p, to);
  FATHOM_LAUNCHED();
}

// A kernel cannot be loaded while a stream is captured.
template <class To>
void load_choose() {
  cudaFuncAttributes loaded;
  FATHOM_CUDA(cudaFuncGetAttributes(&loaded, choose_kernel<To>));
}

}  // namespace fathom::lab::device_graph_launch
