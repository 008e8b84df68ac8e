// The problem: a transformer layer's entry, T tokens of D features, fp32.
//   sum(t, d) = x(t, d) + residual(t, d)
//   y(t, d)   = sum(t, d) * weight(d) / sqrt(mean_d sum(t, d)^2 + epsilon)
// RMSNorm: Zhang and Sennrich, Root Mean Square Layer Normalization, NeurIPS 2019.
#pragma once

#include <cmath>
#include <vector>

#include "lab/problem.h"

namespace fathom::lab::fused_rmsnorm_cpu {

inline constexpr float kEpsilon = 1e-5f;

struct RmsNorm {
  View<const float, 2> x, residual;
  View<const float, 1> weight;
  View<float, 2> sum, y;
  View<float, 1> scale;  // workspace: of each token

  RmsNorm(const Point& at, Arena& arena)
      : x(arena.input<float>({at["tokens"], at["dim"]}, Normal{})),
        residual(arena.input<float>({at["tokens"], at["dim"]}, Normal{})),
        weight(arena.input<float>({at["dim"]}, Uniform{0.5, 1.5})),
        sum(arena.output<float>({at["tokens"], at["dim"]})),
        y(arena.output<float>({at["tokens"], at["dim"]})),
        scale(arena.workspace<float>({at["tokens"]})) {}

  // For each element: an addition, a multiply-add into the sum of squares, two multiplications.
  Cost cost() const {
    return {.read    = x.bytes() + residual.bytes() + weight.bytes(),
            .written = sum.bytes() + y.bytes(),
            .flops   = 5.0 * static_cast<double>(x.size())};
  }

  void check(Checker& checker) const {
    const auto added = [&](int64_t t, int64_t d) { return static_cast<double>(x(t, d)) + residual(t, d); };
    checker.values("sum", sum, [&](int64_t t, int64_t d) {
      return Sum{.value = added(t, d), .magnitude = std::abs(added(t, d)), .length = 1};
    });
    const int64_t dim = x.extent(1);
    checker.values("y", y, [&](int64_t t, int64_t d) {
      double squares = 0;
      for (int64_t i = 0; i < dim; ++i) squares += added(t, i) * added(t, i);
      const double value = added(t, d) * weight(d) / std::sqrt(squares / static_cast<double>(dim) + kEpsilon);
      // All terms of the sum of squares are positive, so its error is relative; seven roundings surround it:
      // the addition, the square, the mean, epsilon, the reciprocal root, two multiplications.
      return Sum{.value = value, .magnitude = std::abs(value), .length = dim + 7};
    });
  }
};

void three_pass(const RmsNorm&, Context&);
void fused(const RmsNorm&, Context&);
void streamed(const RmsNorm&, Context&);
void pipelined(const RmsNorm&, Context&);
void threads(const RmsNorm&, Context&);

}  // namespace fathom::lab::fused_rmsnorm_cpu
