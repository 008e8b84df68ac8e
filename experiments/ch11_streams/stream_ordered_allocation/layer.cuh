// The two kernels of a layer, and the loop over the layers. The second kernel reads what other blocks of the
// first have written, so the squares need memory.
#pragma once

#include "cuda/check.h"
#include "layers.h"

namespace fathom::lab::stream_ordered_allocation {

inline constexpr int kThreads = 256;

static __global__ void square_kernel(const float* in, float* square, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) square[i] = in[i] * in[i];
}

static __global__ void add_mirrored_kernel(const float* square, float* out, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) out[i] = square[i] + square[n - 1 - i];
}

// `allocate(bytes)` returns an owner, whose get() is the memory; it is destroyed at the end of the layer.
template <class Allocate>
void run_layers(const Layers& p, StreamRef stream, Allocate allocate) {
  if (p.n() == 0) return;
  const unsigned blocks = blocks_for(p.n(), kThreads);
  for (int64_t l = 0; l < kLayers; ++l) {
    const auto square = allocate(static_cast<size_t>(p.n()) * sizeof(float));
    square_kernel<<<blocks, kThreads, 0, stream>>>(&p.in(l, 0), square.get(), p.n());
    FATHOM_LAUNCHED();
    add_mirrored_kernel<<<blocks, kThreads, 0, stream>>>(square.get(), &p.out(l, 0), p.n());
    FATHOM_LAUNCHED();
  }
}

// Freed when the stream's work so far is done: the memory may be used in the stream until then.
struct FreeInStream {
  StreamRef stream;
  void operator()(float* memory) const { (void)cudaFreeAsync(memory, stream); }
};

}  // namespace fathom::lab::stream_ordered_allocation
