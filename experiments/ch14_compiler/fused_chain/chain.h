// The problem: residual addition, RMSNorm and a clamp, T tokens of D features, fp32.
//   sum(t, d) = x(t, d) + residual(t, d)
//   y(t, d)   = clamp(sum(t, d) * weight(d) / sqrt(mean_d sum(t, d)^2 + epsilon), -3, 3)
#pragma once

#include <algorithm>
#include <cmath>

#include "lab/problem.h"

namespace fathom::lab::fused_chain {

inline constexpr float kEpsilon = 1e-5f, kLimit = 3;

struct Chain {
  View<const float, 2> x, residual;
  View<const float, 1> weight;
  View<float, 2> sum, y;

  Chain(const Point& at, Arena& arena)
      : x(arena.input<float>({at["tokens"], at["dim"]}, Normal{})),
        residual(arena.input<float>({at["tokens"], at["dim"]}, Normal{})),
        weight(arena.input<float>({at["dim"]}, Uniform{0.5, 2.5})),
        sum(arena.output<float>({at["tokens"], at["dim"]})),
        y(arena.output<float>({at["tokens"], at["dim"]})) {}

  // For each element: an addition, a square and its sum, two multiplications, two comparisons.
  Cost cost() const {
    return {.read    = x.bytes() + residual.bytes() + weight.bytes(),
            .written = sum.bytes() + y.bytes(),
            .flops   = 7.0 * static_cast<double>(x.size())};
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
      // All terms of the sum of squares are positive, so its error is relative; eight roundings surround it:
      // the addition, the square, the mean, epsilon, the root, its reciprocal, two multiplications.
      return Sum{.value     = std::clamp<double>(value, -kLimit, kLimit),
                 .magnitude = std::min<double>(std::abs(value), kLimit),
                 .length    = dim + 8};
    });
  }
};

Launch<Chain> eager(const Chain&, Context&);
Launch<Chain> fused(const Chain&, Context&);
Launch<Chain> threads(const Chain&, Context&);
void hand_written(const Chain&, Context&);

}  // namespace fathom::lab::fused_chain
