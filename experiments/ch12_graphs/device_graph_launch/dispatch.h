// A dispatcher: the state chooses which of four prerecorded graphs runs next, and that one changes the state.
//   token t: the sum of the state modulo 2^32; then graph token % 4, of 2 (g + 1) small kernels:
//   x(i) <- mix(x(i) + x((i + 2^l) mod kWidth) + g),  l = 0 .. 2 g + 1       modulo 2^32
#pragma once

#include <cstdint>
#include <functional>

#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::device_graph_launch {

inline constexpr int kWidth  = 4096;
inline constexpr int kGraphs = 4;

// Even, so that a graph ends in the buffer that it began in.
FATHOM_HD constexpr int kernels_of(int graph) { return 2 * (graph + 1); }

// An odd factor and a shift: invertible, and every bit of x reaches the high ones.
FATHOM_HD constexpr uint32_t mix(uint32_t x) { return (x ^ (x >> 15)) * 0x85EBCA77u; }

struct Dispatch {
  int64_t steps;                  // graphs to run
  View<const uint32_t, 1> start;  // kWidth
  View<uint32_t, 1> tokens;       // output, steps + 1: one before each graph and one after the last
  View<uint32_t, 2> state;        // workspace, 2 x kWidth
  View<uint32_t, 1> count;        // workspace: tokens so far
  // Workspace, page-locked, which a kernel writes: kGraphs * tokens so far + the graph to run.
  View<uint32_t, 1> on_host;

  Dispatch(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
};

// These capture graphs when prepared.
using Call = std::function<void(const Dispatch&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call host_reads(const Dispatch& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER Call host_polls(const Dispatch& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER Call while_switch(const Dispatch& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER Call tail_launch(const Dispatch& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER Call fire_and_forget(const Dispatch& p, StreamRef stream);

}  // namespace fathom::lab::device_graph_launch
