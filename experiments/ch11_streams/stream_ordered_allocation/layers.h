// Layers that each need memory for an intermediate result, for as long as they run:
//   square(i) = in(l, i)^2,   out(l, i) = square(i) + square(n - 1 - i)
#pragma once

#include <functional>

#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::stream_ordered_allocation {

inline constexpr int64_t kLayers = 8;

struct Layers {
  View<const float, 2> in;   // [kLayers, n]
  View<float, 2> out;        // [kLayers, n]
  View<float, 1> workspace;  // [n], for the variant that allocates nothing

  Layers(const Point& at, Arena& arena);
  int64_t n() const { return in.extent(1); }
  Cost cost() const;
  Sum expected(int64_t layer, int64_t i) const;
};

FATHOM_CUDA_LAUNCHER void malloc_free(const Layers& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void default_pool(const Layers& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void preallocated(const Layers& p, StreamRef stream);

// Makes the pool; the returned call is timed.
using Call = std::function<void(const Layers&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call keeping_pool(const Layers&, StreamRef);

}  // namespace fathom::lab::stream_ordered_allocation
