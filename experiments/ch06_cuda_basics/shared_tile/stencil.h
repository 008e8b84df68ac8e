// The problem: a weighted sum of the 5 x 5 neighbourhood of every point,
//   out(i, j) = sum over a, b of weight(a, b) in(i + a, j + b)          0 <= a, b < kTaps
// fp32. `in` is larger than `out` by the rim that this needs, so no point is special.
#pragma once

#include "core/view.h"
#include "cuda/stream.h"

namespace fathom {
class Arena;
}
namespace fathom::lab {
class Point;
struct Cost;
struct Sum;
}  // namespace fathom::lab

namespace fathom::lab::shared_tile {

inline constexpr int kTaps = 5;
inline constexpr int kRim  = kTaps - 1;

// Falls off with the square of the distance from the centre. Not a product of a row and a column.
FATHOM_HD constexpr float weight(int a, int b) {
  return 0.25f / static_cast<float>(1 + (a - 2) * (a - 2) + (b - 2) * (b - 2));
}

struct Stencil {
  View<const float, 2> in;  // n + kRim, n + kRim
  View<float, 2> out;       // n, n

  Stencil(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t i, int64_t j) const;
};

FATHOM_CUDA_LAUNCHER void global(const Stencil& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void global_column(const Stencil& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void tile(const Stencil& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void tile_column(const Stencil& p, StreamRef stream);

}  // namespace fathom::lab::shared_tile
