// Tasks [first, first + count) as one: a copy in, a kernel, a copy out.
#pragma once

#include "experiments/ch11_streams/leaky_integrator.cuh"
#include "tasks.h"

namespace fathom::lab::concurrent_kernels {

inline void enqueue(const Tasks& p, int64_t first, int64_t count, StreamRef stream) {
  if (count * p.n() == 0) return;
  const auto bytes = static_cast<size_t>(count * p.n()) * sizeof(float);
  float *in = &p.device_in(first, 0), *out = &p.device_out(first, 0);
  FATHOM_CUDA(cudaMemcpyAsync(in, &p.in(first, 0), bytes, cudaMemcpyHostToDevice, stream));
  leaky_integrator::integrate(in, out, count * p.n(), p.steps, stream);
  FATHOM_CUDA(cudaMemcpyAsync(&p.out(first, 0), out, bytes, cudaMemcpyDeviceToHost, stream));
}

}  // namespace fathom::lab::concurrent_kernels
