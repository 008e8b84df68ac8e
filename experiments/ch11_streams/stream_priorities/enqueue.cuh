// The flood and the chain.
#pragma once

#include "experiments/ch11_streams/leaky_integrator.cuh"
#include "flood.h"

namespace fathom::lab::stream_priorities {

inline void enqueue_flood(const Flood& p, StreamRef stream) {
  for (int k = 0; k < kFloodKernels; ++k)
    leaky_integrator::integrate(&p.flood_in(k, 0), &p.flood_out(k, 0), p.flood_in.extent(1), p.steps, stream);
}

inline void enqueue_chain(const Flood& p, StreamRef stream) {
  const float* from = p.chain_in.data();
  for (int k = 0; k < kChainKernels; ++k) {
    float* to = k + 1 < kChainKernels ? &p.link(k % 2, 0) : p.chain_out.data();
    leaky_integrator::integrate(from, to, p.chain_in.size(), p.chain_steps, stream);
    from = to;
  }
}

}  // namespace fathom::lab::stream_priorities
