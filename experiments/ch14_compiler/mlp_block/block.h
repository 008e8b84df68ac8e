// The problem: the dense half of a transformer layer, T tokens of D = 256, with I = 224 intermediate
// features.
//   h = bf16(x * norm / rms(x)), u = up h + up_bias, gate = min(u(2 i), 7), lin = clamp(u(2 i + 1), -7, 7)
//   a = bf16(gate * sigmoid(1.702 gate) * (lin + 1)), y = x + down a
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "lab/problem.h"

namespace fathom::lab::mlp_block {

inline constexpr int64_t kHidden = 256, kIntermediate = 224;

struct Block {
  View<const float, 2> x;
  View<const float, 1> norm;
  View<const bf16, 2> up, down;
  View<const bf16, 1> up_bias;
  View<float, 2> out;

  Block(const Point& at, Arena& arena)
      : x(arena.input<float>({at["tokens"], kHidden}, Normal{})),
        norm(arena.input<float>({kHidden}, Uniform{0.5, 1.5})),
        up(arena.input<bf16>({2 * kIntermediate, kHidden}, Uniform{-0.2, 0.2})),
        down(arena.input<bf16>({kHidden, kIntermediate}, Uniform{-0.2, 0.2})),
        up_bias(arena.input<bf16>({2 * kIntermediate}, Uniform{-0.5, 0.5})),
        out(arena.output<float>({at["tokens"], kHidden})) {}

  // Of the two products.
  Cost cost() const {
    return {.read    = x.bytes() + norm.bytes() + up.bytes() + down.bytes() + up_bias.bytes(),
            .written = out.bytes(),
            .flops   = 2.0 * static_cast<double>(x.extent(0)) * (3 * kHidden * kIntermediate)};
  }

  void check(Checker& checker) const {
    int64_t row = -1;
    std::vector<double> a(kIntermediate);
    checker.values("out", out, [&](int64_t t, int64_t d) {
      if (t != std::exchange(row, t)) intermediate(t, a);
      double value = x(t, d), magnitude = std::abs(value);
      for (int64_t i = 0; i < kIntermediate; ++i) {
        const double term = a[static_cast<size_t>(i)] * static_cast<float>(down(d, i));
        value += term;
        magnitude += std::abs(term);
      }
      // h and a are rounded to bf16: one that lies between two numbers may become either.
      return Sum{.value = value, .magnitude = magnitude, .length = 1, .accumulate = DType::bf16};
    });
  }

 private:
  void intermediate(int64_t t, std::vector<double>& a) const {
    double squares = 0;
    for (int64_t i = 0; i < kHidden; ++i) squares += static_cast<double>(x(t, i)) * x(t, i);
    const double scale = 1 / std::sqrt(squares / kHidden + 1e-5);
    std::vector<double> h(kHidden);
    for (int64_t i = 0; i < kHidden; ++i)
      h[static_cast<size_t>(i)] = static_cast<float>(bf16(static_cast<float>(x(t, i) * scale * norm(i))));
    const auto projected = [&](int64_t row) {
      double sum = static_cast<float>(up_bias(row));
      for (int64_t i = 0; i < kHidden; ++i) sum += h[static_cast<size_t>(i)] * static_cast<float>(up(row, i));
      return sum;
    };
    for (int64_t i = 0; i < kIntermediate; ++i) {
      const double gate         = std::min(projected(2 * i), 7.0);
      const double linear       = std::clamp(projected(2 * i + 1), -7.0, 7.0);
      const double value        = gate / (1 + std::exp(-1.702 * gate)) * (linear + 1);
      a[static_cast<size_t>(i)] = static_cast<float>(bf16(static_cast<float>(value)));
    }
  }
};

Launch<Block> eager(const Block&, Context&);
Launch<Block> fused(const Block&, Context&);
Launch<Block> threads(const Block&, Context&);

}  // namespace fathom::lab::mlp_block
