// A chain like that of a decode step of one token: each layer normalises x and adds a product of it.
//   y = norm(l, .) x / sqrt(mean x^2 + epsilon),   x += W(l) y         x and y fp32 [H], W bf16 [L, H, H]
#pragma once

#include <functional>

#include "core/dtype.h"
#include "core/stream.h"
#include "core/view.h"
#include "lab/forward.h"

namespace fathom::lab::dependent_launch {

inline constexpr float kEpsilon    = 1e-5f;
inline constexpr int64_t kLayers   = 24;
inline constexpr int64_t kMultiple = 8;     // H is one of it
inline constexpr int64_t kWidest   = 2048;  // H at most

struct Chain {
  int64_t width;
  View<const float, 1> x;
  View<const float, 2> norm;
  View<const bf16, 3> w;
  View<float, 1> out;  // x after the last layer; of layers in between, too
  View<float, 1> y;    // workspace

  Chain(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
};

FATHOM_CUDA_LAUNCHER void launched(const Chain& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void dependent(const Chain& p, StreamRef stream);

// Both capture the chain when prepared; what they return launches the graph.
using Call = std::function<void(const Chain&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call graph(const Chain& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER Call dependent_graph(const Chain& p, StreamRef stream);

}  // namespace fathom::lab::dependent_launch
