// The problem: a chain of multiply-adds on every element of an array, fp32: out = f(f(...f(in))), `fmas`
// times f(x) = kFactor x + kSummand. 2 fmas flops for 8 bytes: the intensity is fmas / 4.
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

namespace fathom::lab::roofline_sweep {

// After 512 steps something of the first number is left (0.61), and every step has changed it.
inline constexpr float kFactor  = 1 - 0x1p-10f;
inline constexpr float kSummand = 0x1p-9f;

struct Sweep {
  View<const float, 1> in;
  View<float, 1> out;
  int fmas;

  Sweep(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t i) const;
};

FATHOM_CUDA_LAUNCHER void plain(const Sweep& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void blocked(const Sweep& p, StreamRef stream);

}  // namespace fathom::lab::roofline_sweep
