// The problem: one training step's way through a gated RMSNorm (Mamba-2's), T rows of D = 2048. Given x, z, w
// and dy:
//   s = 1 / sqrt(mean(x^2) + eps), n = x s, y = n w silu(z)
//   dz = dy n w silu'(z), silu'(z) = sigmoid(z) (1 + z (1 - sigmoid(z)))
//   dn = dy w silu(z), dx = s (dn - n mean(dn n)), dw = sum over rows of dy silu(z) n
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "lab/problem.h"

namespace fathom::lab::joint_backward {

inline constexpr int64_t kWidth = 2048;

struct GatedNorm {
  View<const float, 2> x, z, dy;
  View<const float, 1> w;
  View<float, 2> y, dx, dz;
  View<float, 1> dw;

  GatedNorm(const Point& at, Arena& arena)
      : x(arena.input<float>({at["tokens"], kWidth}, Normal{})),
        z(arena.input<float>({at["tokens"], kWidth}, Normal{})),
        dy(arena.input<float>({at["tokens"], kWidth}, Normal{})),
        w(arena.input<float>({kWidth}, Uniform{0.5, 1.5})),
        y(arena.output<float>({at["tokens"], kWidth})),
        dx(arena.output<float>({at["tokens"], kWidth})),
        dz(arena.output<float>({at["tokens"], kWidth})),
        dw(arena.output<float>({kWidth})) {}

  Cost cost() const {
    return {.read    = x.bytes() + z.bytes() + dy.bytes() + w.bytes(),
            .written = y.bytes() + dx.bytes() + dz.bytes() + dw.bytes()};
  }

  void check(Checker& checker) const {
    std::vector<RowSums> rows;
    for (int64_t t = 0; t < x.extent(0); ++t) rows.push_back(sums_of(t));
    const auto at = [&](int64_t t) -> const RowSums& { return rows[static_cast<size_t>(t)]; };
    checker.values("y", y, [&](int64_t t, int64_t i) {
      const double value = x(t, i) * at(t).scale * w(i) * silu(z(t, i));
      return Sum{.value = value, .magnitude = std::abs(value), .length = kRoundings};
    });
    checker.values("dz", dz, [&](int64_t t, int64_t i) {
      const double gate = sigmoid(z(t, i)), other = 1 - gate, n = x(t, i) * at(t).scale;
      const double outer = dy(t, i) * n * w(i) * gate;
      return Sum{.value     = outer * (1 + z(t, i) * other),
                 .magnitude = std::abs(outer) * (1 + std::abs(z(t, i))),
                 .length    = kRoundings};
    });
    checker.values("dx", dx, [&](int64_t t, int64_t i) {
      const double n = x(t, i) * at(t).scale, dn = dy(t, i) * w(i) * silu(z(t, i));
      return Sum{.value     = at(t).scale * (dn - n * at(t).mean),
                 .magnitude = at(t).scale * (std::abs(dn) + std::abs(n) * at(t).mean_magnitude),
                 .length    = kRoundings};
    });
    checker.values("dw", dw, [&](int64_t i) {
      double value = 0, magnitude = 0;
      for (int64_t t = 0; t < x.extent(0); ++t) {
        const double term = dy(t, i) * silu(z(t, i)) * x(t, i) * at(t).scale;
        value += term;
        magnitude += std::abs(term);
      }
      return Sum{.value = value, .magnitude = magnitude, .length = x.extent(0) + kRoundings};
    });
  }

 private:
  static constexpr int64_t kRoundings = 24;  // one after another, beside a sum in lanes

  struct RowSums {
    double scale;                 // s
    double mean, mean_magnitude;  // of dn n and |dn n|
  };

  static double sigmoid(double z) { return 1 / (1 + std::exp(-z)); }
  static double silu(double z) { return z * sigmoid(z); }

  RowSums sums_of(int64_t t) const {
    double squares = 0, products = 0, magnitudes = 0;
    for (int64_t i = 0; i < kWidth; ++i) squares += static_cast<double>(x(t, i)) * x(t, i);
    const double scale = 1 / std::sqrt(squares / kWidth + 1e-5);
    for (int64_t i = 0; i < kWidth; ++i) {
      const double product = dy(t, i) * w(i) * silu(z(t, i)) * x(t, i) * scale;
      products += product;
      magnitudes += std::abs(product);
    }
    return {scale, products / kWidth, magnitudes / kWidth};
  }
};

Launch<GatedNorm> eager(const GatedNorm&, Context&);
Launch<GatedNorm> compiled_forward(const GatedNorm&, Context&);
Launch<GatedNorm> joint(const GatedNorm&, Context&);
Launch<GatedNorm> threads(const GatedNorm&, Context&);

}  // namespace fathom::lab::joint_backward
