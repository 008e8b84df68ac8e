// The problem: square tiles that mix with their own transpose, kSteps times:
//   x(i, j) <- (1 - kShare) x(i, j) + kShare x(j, i)
// A step sends every element of a tile through shared memory, written by rows and read by columns.
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

namespace fathom::lab::bank_conflicts {

inline constexpr int kSide    = 32;  // of a tile: as wide as a warp
inline constexpr int kSteps   = 32;
inline constexpr float kShare = 1.0f / 32;  // exact, and so is 1 - kShare

struct Mixing {
  View<const float, 3> in;  // tiles x kSide x kSide
  View<float, 3> out;

  Mixing(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t tile, int64_t i, int64_t j) const;
};

FATHOM_CUDA_LAUNCHER void plain(const Mixing& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void padded(const Mixing& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void swizzled(const Mixing& p, StreamRef stream);

}  // namespace fathom::lab::bank_conflicts
