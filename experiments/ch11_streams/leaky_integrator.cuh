// The kernel of leaky_integrator.h.
//
// bytes   8 a number
// flops   2 a number and step
// limit   fp32 multiply-adds from some 30 steps on; one CTA keeps the four schedulers of its multiprocessor
//         busy, as two warps with four independent chains each are on a scheduler
#pragma once

#include "cuda/check.h"
#include "cuda/stream.h"
#include "experiments/ch11_streams/leaky_integrator.h"

namespace fathom::lab::leaky_integrator {

inline constexpr int kThreads = 256, kEach = 4, kTile = kThreads * kEach;

static __global__ void __launch_bounds__(kThreads)
    integrate_kernel(const float* in, float* out, int64_t n, int steps) {
  const int64_t first = int64_t{blockIdx.x} * kTile + threadIdx.x;
  float x[kEach], y[kEach] = {};
#pragma unroll
  for (int e = 0; e < kEach; ++e) x[e] = first + e * kThreads < n ? in[first + e * kThreads] : 0;
#pragma unroll 8
  for (int step = 0; step < steps; ++step)
#pragma unroll
    for (int e = 0; e < kEach; ++e) y[e] = fmaf(kDecay, y[e], x[e]);
#pragma unroll
  for (int e = 0; e < kEach; ++e)
    if (first + e * kThreads < n) out[first + e * kThreads] = y[e];
}

inline void integrate(const float* in, float* out, int64_t n, int64_t steps, StreamRef stream) {
  if (n == 0) return;
  integrate_kernel<<<blocks_for(n, kTile), kThreads, 0, stream>>>(in, out, n, static_cast<int>(steps));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::leaky_integrator
