// A chain like a decode step of one token: each layer normalises x and adds its product with a matrix.
//   y = norm(l, .) x / sqrt(mean x^2 + epsilon),   x += W(l) y         x and y fp32 [H], W bf16 [L, H, H]
#pragma once

#include <functional>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::dependent_launch {

inline constexpr float kEpsilon    = 1e-5f;
inline constexpr int64_t kLayers   = 24;
inline constexpr int64_t kMultiple = 8;     // H is a multiple of it
inline constexpr int64_t kMaxWidth = 2048;  // the largest H

struct Chain {
  int64_t width;
  View<const float, 1> x;
  View<const float, 2> norm;
  View<const bf16, 3> w;
  View<float, 1> out;  // x after each layer, in the end after the last
  View<float, 1> y;    // workspace

  Chain(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
};

FATHOM_CUDA_LAUNCHER void launched(const Chain& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void dependent(const Chain& p, StreamRef stream);

// Both capture the chain when prepared; the returned call launches the graph.
using Call = std::function<void(const Chain&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call graph(const Chain& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER Call dependent_graph(const Chain& p, StreamRef stream);

}  // namespace fathom::lab::dependent_launch
