// The dense half of a transformer layer, D = 256, I = 224, as a problem of T tokens, and its reference in
// double:
//   h = bf16(x * norm / rms(x)), u = up h + up_bias, gate = min(u(2 i), 7), lin = clamp(u(2 i + 1), -7, 7)
//   a = bf16(gate * sigmoid(1.702 gate) * (lin + 1)), y = x + down a
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "lab/problem.h"

namespace fathom::lab::mlp_layer {

inline constexpr int64_t kHidden = 256, kIntermediate = 224;

struct Weights {
  View<const float, 1> norm;
  View<const bf16, 2> up;
  View<const bf16, 1> up_bias;
  View<const bf16, 2> down;
};

// The layer on one token: y, and the sum of the magnitudes of what was added up to it.
inline void add_layer(const Weights& w, std::vector<double>& y, std::vector<double>& magnitudes) {
  double squares = 0;
  for (const double value : y) squares += value * value;
  const double scale = 1 / std::sqrt(squares / kHidden + 1e-5);
  std::vector<double> h(kHidden), a(kIntermediate);
  for (int64_t d = 0; d < kHidden; ++d) {
    const auto i = static_cast<size_t>(d);
    h[i]         = static_cast<float>(bf16(static_cast<float>(y[i] * scale * w.norm(d))));
  }
  const auto projected = [&](int64_t row) {
    double sum = static_cast<float>(w.up_bias(row));
    for (int64_t d = 0; d < kHidden; ++d) sum += h[static_cast<size_t>(d)] * static_cast<float>(w.up(row, d));
    return sum;
  };
  for (int64_t i = 0; i < kIntermediate; ++i) {
    const double gate         = std::min(projected(2 * i), 7.0);
    const double linear       = std::clamp(projected(2 * i + 1), -7.0, 7.0);
    const double value        = gate / (1 + std::exp(-1.702 * gate)) * (linear + 1);
    a[static_cast<size_t>(i)] = static_cast<float>(bf16(static_cast<float>(value)));
  }
  for (int64_t d = 0; d < kHidden; ++d)
    for (int64_t i = 0; i < kIntermediate; ++i) {
      const double term = a[static_cast<size_t>(i)] * static_cast<float>(w.down(d, i));
      y[static_cast<size_t>(d)] += term;
      magnitudes[static_cast<size_t>(d)] += std::abs(term);
    }
}

struct Layer {
  View<const float, 2> x;
  Weights w;
  View<float, 2> out;

  Layer(const Point& at, Arena& arena)
      : x(arena.input<float>({at["tokens"], kHidden}, Normal{})),
        w{.norm    = arena.input<float>({kHidden}, Uniform{0.5, 1.5}),
          .up      = arena.input<bf16>({2 * kIntermediate, kHidden}, Uniform{-0.2, 0.2}),
          .up_bias = arena.input<bf16>({2 * kIntermediate}, Uniform{-0.5, 0.5}),
          .down    = arena.input<bf16>({kHidden, kIntermediate}, Uniform{-0.2, 0.2})},
        out(arena.output<float>({at["tokens"], kHidden})) {}

  // Of the two products.
  Cost cost() const {
    return {.read    = x.bytes() + w.norm.bytes() + w.up.bytes() + w.down.bytes() + w.up_bias.bytes(),
            .written = out.bytes(),
            .flops   = 2.0 * static_cast<double>(x.extent(0)) * (3 * kHidden * kIntermediate)};
  }

  void check(Checker& checker) const {
    int64_t row = -1;
    std::vector<double> y(kHidden), magnitudes(kHidden);
    checker.values("out", out, [&](int64_t t, int64_t d) {
      if (t != std::exchange(row, t)) {
        for (int64_t i = 0; i < kHidden; ++i) y[static_cast<size_t>(i)] = x(t, i);
        for (int64_t i = 0; i < kHidden; ++i) magnitudes[static_cast<size_t>(i)] = std::abs(x(t, i));
        add_layer(w, y, magnitudes);
      }
      // h and a are rounded to bf16: one that lies between two numbers may become either.
      return Sum{.value      = y[static_cast<size_t>(d)],
                 .magnitude  = magnitudes[static_cast<size_t>(d)],
                 .length     = 1,
                 .accumulate = DType::bf16};
    });
  }
};

}  // namespace fathom::lab::mlp_layer
