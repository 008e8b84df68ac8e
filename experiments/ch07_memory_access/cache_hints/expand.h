// The problem: out(i, d) = table(id(i), d), fp32 rows of 64: a table that could stay in L2 is expanded into a
// result that is written once and not read again.
#pragma once

#include <cstdint>

#include "core/view.h"
#include "cuda/stream.h"

namespace fathom {
class Arena;
}
namespace fathom::lab {
class Point;
struct Cost;
}  // namespace fathom::lab

namespace fathom::lab::cache_hints {

constexpr int kWidth = 64;  // of a row: 256 bytes

struct Expand {
  View<const int32_t, 1> id;
  View<const float, 2> table;
  View<float, 2> out;

  Expand(const Point& at, Arena& arena);
  Cost cost() const;
  double expected(int64_t i, int64_t d) const;
};

FATHOM_CUDA_LAUNCHER void plain(const Expand& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void no_allocate(const Expand& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void streaming(const Expand& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void evict_first(const Expand& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void both(const Expand& p, StreamRef stream);

}  // namespace fathom::lab::cache_hints
