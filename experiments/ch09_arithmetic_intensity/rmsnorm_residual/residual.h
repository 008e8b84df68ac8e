// The problem: a transformer layer's entry, T tokens of D features, bf16 in and out, fp32 between.
//   sum(t, d) = x(t, d) + residual(t, d)                                     rounded to bf16
//   y(t, d)   = sum(t, d) * weight(d) / sqrt(mean_d sum(t, d)^2 + epsilon)   of the rounded sum
#pragma once

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"

namespace fathom {
class Arena;
}
namespace fathom::lab {
class Checker;
class Point;
struct Cost;
}  // namespace fathom::lab

namespace fathom::lab::rmsnorm_residual {

inline constexpr float kEpsilon = 1e-5f;

struct Residual {
  View<const bf16, 2> x, residual;
  View<const bf16, 1> weight;
  View<bf16, 2> sum, y;

  Residual(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
};

FATHOM_CUDA_LAUNCHER void two_kernels(const Residual& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void fused(const Residual& p, StreamRef stream);

}  // namespace fathom::lab::rmsnorm_residual
