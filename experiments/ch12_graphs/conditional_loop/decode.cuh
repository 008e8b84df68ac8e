// The kernels of a step. The last one reports whether the loop goes on, in memory or to a conditional node.
#pragma once

#include "cuda/check.h"
#include "cuda/warp_reduce.cuh"
#include "decode.h"

namespace fathom::lab::conditional_loop {

inline constexpr int kThreads      = 256;
inline constexpr int kTokenThreads = 1024;

static __global__ void __launch_bounds__(kThreads) begin_kernel(Decode p) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < kWidth) p.state(0, i) = p.prompt(i);
  for (int64_t t = i; t < p.steps; t += kWidth) p.tokens(t) = 0;
  if (i == 0) p.count(0) = p.done(0) = 0;
}

// After the last token it changes nothing, so that steps may be enqueued that turn out not to be needed.
static __global__ void __launch_bounds__(kThreads) layer_kernel(Decode p, int layer) {
  if (p.done(0)) return;
  const int i                 = blockIdx.x * kThreads + threadIdx.x;  // below kWidth
  const int other             = (i + (1 << layer)) % kWidth;
  p.state((layer + 1) % 2, i) = mix(p.state(layer % 2, i) + p.state(layer % 2, other));
}

// Where the flag goes beside memory.
struct ToMemoryOnly {
  __device__ void go_on(bool) const {}
};
struct ToNode {
  cudaGraphConditionalHandle handle;
  __device__ void go_on(bool more) const { cudaGraphSetConditional(handle, more); }
};

// One block: the sum of the state is the token.
template <class To>
__global__ void __launch_bounds__(kTokenThreads) token_kernel(Decode p, To to) {
  __shared__ uint32_t warp_sums[kTokenThreads / 32];
  if (p.done(0)) return;  // the same for all threads: thread 0 writes it after the barrier below
  uint32_t sum = 0;
  for (int i = threadIdx.x; i < kWidth; i += kTokenThreads) sum += p.state(0, i);
  sum = warp_reduce_sum(sum);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
  __syncthreads();  // warp_sums is complete, and all threads have read `done`
  if (threadIdx.x >= 32) return;
  const uint32_t token = warp_reduce_sum(warp_sums[threadIdx.x]);
  if (threadIdx.x > 0) return;
  const uint32_t count = p.count(0);
  p.tokens(count)      = token;
  p.count(0)           = count + 1;
  const bool last      = token == p.prompt(kWidth) || count + 1 == p.steps;
  p.done(0)            = last;
  to.go_on(!last);
}

inline void launch_begin(const Decode& p, StreamRef stream) {
  begin_kernel<<<kWidth / kThreads, kThreads, 0, stream>>>(p);
  FATHOM_LAUNCHED();
}

template <class To>
void launch_step(const Decode& p, To to, StreamRef stream) {
  for (int l = 0; l < kLayers; ++l) {
    layer_kernel<<<kWidth / kThreads, kThreads, 0, stream>>>(p, l);
    FATHOM_LAUNCHED();
  }
  token_kernel<<<1, kTokenThreads, 0, stream>>>(p, to);
  FATHOM_LAUNCHED();
}

// Waits for the flag of the steps enqueued so far.
inline bool is_done(const Decode& p, StreamRef stream) {
  FATHOM_CUDA(cudaStreamSynchronize(stream));
  return *static_cast<const volatile uint32_t*>(p.done_on_host.data()) != 0;
}
inline void enqueue_flag(const Decode& p, StreamRef stream) {
  FATHOM_CUDA(cudaMemcpyAsync(p.done_on_host.data(), p.done.data(), sizeof(uint32_t), cudaMemcpyDeviceToHost,
                              stream));
}

}  // namespace fathom::lab::conditional_loop
