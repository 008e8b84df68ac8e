// The three steps of numbers [first, first + count).
#pragma once

#include <algorithm>

#include "experiments/ch11_streams/leaky_integrator.cuh"
#include "offload.h"

namespace fathom::lab::copy_compute_overlap {

struct Chunk {
  int64_t first, count;

  size_t bytes() const { return static_cast<size_t>(count) * sizeof(float); }
  void copy_in(const Offload& p, View<const float, 1> from, StreamRef stream) const {
    FATHOM_CUDA(cudaMemcpyAsync(p.device_in.data() + first, from.data() + first, bytes(),
                                cudaMemcpyHostToDevice, stream));
  }
  void compute(const Offload& p, StreamRef stream) const {
    leaky_integrator::integrate(p.device_in.data() + first, p.device_out.data() + first, count, p.steps,
                                stream);
  }
  void copy_out(const Offload& p, StreamRef stream) const {
    FATHOM_CUDA(cudaMemcpyAsync(p.out.data() + first, p.device_out.data() + first, bytes(),
                                cudaMemcpyDeviceToHost, stream));
  }
};

inline int64_t chunks(const Offload& p) { return (p.n() + kChunk - 1) / kChunk; }
inline Chunk chunk(const Offload& p, int64_t c) {
  return {.first = c * kChunk, .count = std::min(kChunk, p.n() - c * kChunk)};
}

}  // namespace fathom::lab::copy_compute_overlap
