// A chain of 24 small kernels of which each takes a number that changes from call to call, as a step's
// position does. The host knows the number, and the graph of the last call holds the one before.
//   x = in,   then 24 times   x(i) = (x(i) xor step) * kFactor + l   modulo 2^32,   l = 0 .. 23
#pragma once

#include <cstdint>
#include <functional>

#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::graph_update {

inline constexpr int kKernels      = 24;
inline constexpr uint32_t kFactor  = 0x9E3779B1;
inline constexpr int64_t kMaxItems = 1 << 20;

struct Chain {
  View<const uint32_t, 1> in;
  View<const uint32_t, 1> step;  // one number, in the host's memory
  View<uint32_t, 1> out;
  View<uint32_t, 1> step_on_device;  // workspace

  Chain(const Point& at, Arena& arena);
  Cost cost() const;
  uint32_t expected(int64_t i) const;
};

FATHOM_CUDA_LAUNCHER void launched(const Chain& p, StreamRef stream);  // the step is an argument
FATHOM_CUDA_LAUNCHER void launch_reading(const Chain& p,
                                         StreamRef stream);  // the step is read from the device

// These own a graph, whose addresses are those of the problem that they were prepared with.
using Call = std::function<void(const Chain&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call recaptured(const Chain& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER Call exec_update(const Chain& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER Call node_params(const Chain& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER Call from_device(const Chain& p, StreamRef stream);

}  // namespace fathom::lab::graph_update
