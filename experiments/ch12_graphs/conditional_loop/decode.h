// A loop like decode: each step is four small kernels and one that reduces their result to a token. It ends
// with a stop token, which only the GPU knows, or after `steps` tokens.
//   state of a step: kLayers times   x(i) <- mix(x(i) + x((i + 2^l) mod kWidth))       modulo 2^32
//   token: the sum of x modulo 2^32
#pragma once

#include <cstdint>
#include <functional>

#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::conditional_loop {

inline constexpr int kWidth  = 4096;
inline constexpr int kLayers = 4;  // even: a step ends in the buffer that it began in

// An odd factor and a shift: invertible, and every bit of x reaches the high ones.
FATHOM_HD constexpr uint32_t mix(uint32_t x) { return (x ^ (x >> 15)) * 0x85EBCA77u; }

struct Decode {
  int64_t steps;                   // at most
  View<const uint32_t, 1> prompt;  // kWidth numbers, then the stop token
  View<uint32_t, 1> tokens;        // output: `steps` of them, 0 after the stop token
  View<uint32_t, 2> state;         // workspace: 2 x kWidth
  View<uint32_t, 1> count;         // workspace: tokens so far
  View<uint32_t, 1> done;          // workspace on the device: 1 after the last token
  View<uint32_t, 1> done_on_host;  // workspace, page-locked

  Decode(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
};

FATHOM_CUDA_LAUNCHER void host_loop(const Decode& p, StreamRef stream);

// These capture graphs when prepared.
using Call = std::function<void(const Decode&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call host_graph(const Decode& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER Call eight_steps(const Decode& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER Call while_node(const Decode& p, StreamRef stream);

}  // namespace fathom::lab::conditional_loop
