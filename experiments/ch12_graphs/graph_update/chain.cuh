// The kernel of the chain, with its step as an argument or in device memory.
#pragma once

#include "chain.h"
#include "cuda/check.h"

namespace fathom::lab::graph_update {

inline constexpr int kThreads = 256;

struct Argument {
  uint32_t step;
  __device__ uint32_t get() const { return step; }
};
struct InDeviceMemory {
  const uint32_t* step;
  __device__ uint32_t get() const { return *step; }
};

template <class Step>
__global__ void __launch_bounds__(kThreads)
    mix_kernel(const uint32_t* in, uint32_t* out, int n, uint32_t l, Step step) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) out[i] = (in[i] ^ step.get()) * kFactor + l;
}

template <class Step>
void launch_chain(const Chain& p, Step step, StreamRef stream) {
  const int n = static_cast<int>(p.in.size());
  if (n == 0) return;
  const uint32_t* from = p.in.data();
  for (uint32_t l = 0; l < kKernels; ++l) {
    mix_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream>>>(from, p.out.data(), n, l, step);
    FATHOM_LAUNCHED();
    from = p.out.data();
  }
}

}  // namespace fathom::lab::graph_update
