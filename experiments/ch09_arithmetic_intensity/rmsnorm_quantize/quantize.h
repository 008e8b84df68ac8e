// The problem: RMSNorm of T tokens with D features whose result goes into an fp8 matrix product: bf16 in,
// e4m3 and one fp32 scale for each token out.
//   y(t, d)  = x(t, d) * weight(d) / sqrt(mean_d x(t, d)^2 + epsilon)
//   scale(t) = max(max_d |y(t, d)| / 448, smallest)        448: the largest e4m3
//   q(t, d)  = y(t, d) / scale(t)                          rounded to e4m3
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

namespace fathom::lab::rmsnorm_quantize {

inline constexpr float kEpsilon       = 1e-5f;
inline constexpr float kLargest       = 448;
inline constexpr float kSmallestScale = 0x1p-64f;  // so that a row of zeros divides by something

struct Quantize {
  View<const bf16, 2> x;
  View<const bf16, 1> weight;
  View<fp8_e4m3, 2> q;
  View<float, 1> scale;
  View<bf16, 2> y;  // workspace of the unfused variant

  Quantize(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
};

FATHOM_CUDA_LAUNCHER void two_kernels(const Quantize& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void fused(const Quantize& p, StreamRef stream);

}  // namespace fathom::lab::rmsnorm_quantize
