// The problem: n affine recurrences of 8192 steps, x <- a x + b from x = b, one FMA a step and each waiting
// for the one before it.
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

namespace fathom::lab::extreme_ilp {

inline constexpr int kSteps = 8192;

struct Recurrence {
  View<const float, 1> a;  // so near to 1 that the first step still counts after the last
  View<const float, 1> b;
  View<float, 1> out;

  Recurrence(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t i) const;
};

FATHOM_CUDA_LAUNCHER void one_chain(const Recurrence& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void two_chains(const Recurrence& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void four_chains(const Recurrence& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void eight_chains(const Recurrence& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void sixteen_chains(const Recurrence& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void all_warps(const Recurrence& p, StreamRef stream);

}  // namespace fathom::lab::extreme_ilp
