// Two independent pieces of work. The flood: kernels of many more CTAs than the GPU holds at once. The chain:
// small kernels that each need the result of the one before, like the exchange of gradients or a decode step
// beside prefill. Kernel k of the chain reads link k and writes link k + 1.
#pragma once

#include <functional>

#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::stream_priorities {

inline constexpr int kFloodKernels = 4, kChainKernels = 64;

struct Flood {
  int64_t steps;                  // of the flood
  int64_t chain_steps;            // of a kernel of the chain
  View<const float, 2> flood_in;  // [kFloodKernels, n]
  View<float, 2> flood_out;       // [kFloodKernels, n]
  View<const float, 1> chain_in;  // [m]
  View<float, 1> chain_out;       // [m]
  View<float, 2> link;            // workspace, [2, m]: the results in between, in turn

  Flood(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
};

FATHOM_CUDA_LAUNCHER void one_stream(const Flood& p, StreamRef stream);

// Make the chain's stream; the returned call is timed.
using Call = std::function<void(const Flood&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call equal_priority(const Flood&, StreamRef);
FATHOM_CUDA_LAUNCHER Call high_priority(const Flood&, StreamRef);

}  // namespace fathom::lab::stream_priorities
