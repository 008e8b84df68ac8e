// The layers of mxfp4_layers.h as inputs of a problem, and their reference in double, an element at a time
// (kernels/moe/experts.h). The first layer's result is rounded to bf16 and an output of every variant, so
// that the second layer is compared given its actual input.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "experiments/ch15_moe_inference/mxfp4_layers.h"
#include "lab/check.h"
#include "lab/problem.h"

namespace fathom::lab::mxfp4 {

inline Matrices input_matrices(const Places& at, kernels::RowOrder order, View<const float, 2> bias,
                               Arena& arena) {
  const auto fill = [=](uint8_t* to, int64_t, uint64_t seed) { fill_matrices(to, at, order, seed); };
  return matrices_at(arena.input<uint8_t>({at.bytes}, generate<uint8_t>(fill)).data(), at, bias.data());
}

// Bias plus product of output n of an expert; `packed` is its packed row.
inline Sum product(const Matrices& w, int64_t expert, int64_t n, int64_t packed, const bf16* x) {
  static constexpr auto kNumbers = [] {
    std::array<double, 16> numbers{};
    for (uint32_t code = 0; code < 16; ++code) numbers[code] = static_cast<float>(fp4_e2m1::from_bits(code));
    return numbers;
  }();
  const double bias = w.packed.bias[expert * w.packed.rows + packed];
  Sum sum{.value = bias, .magnitude = std::abs(bias), .length = w.packed.depth + 1};
  for (int64_t g = 0; g < w.scales.extent(2); ++g) {
    const double scale   = static_cast<float>(e8m0::from_bits(w.scales(expert, n, g)));
    const uint8_t* codes = &w.blocks(expert, n, g, 0);
    for (int i = 0; i < 32; ++i) {
      const double term =
          kNumbers[codes[i / 2] >> (i % 2 * 4) & 15] * scale * static_cast<float>(x[g * 32 + i]);
      sum.value += term;
      sum.magnitude += std::abs(term);
    }
  }
  return sum;
}

// Unit u of the first layer.
inline Sum gated(const Matrices& w, int64_t expert, int64_t u, const bf16* x) {
  const int64_t packed = u / 8 * 16 + u % 8;
  const Sum gate = product(w, expert, 2 * u, packed, x), up = product(w, expert, 2 * u + 1, packed + 8, x);
  const double g = std::min<double>(gate.value, kLimit),
               l = std::clamp<double>(up.value, -kLimit, kLimit) + 1;
  const double s = g / (1 + std::exp(-kAlpha * g));
  // |d(g sigmoid(alpha g)) / dg| <= 1.1, and the exponential errs by the rounding of its argument.
  return {.value     = s * l,
          .magnitude = std::abs(s * l) * (1 + std::abs(kAlpha * g)) + 1.1 * std::abs(l) * gate.magnitude +
                       std::abs(s) * up.magnitude,
          .length = gate.length};
}

// Output h of the second layer, times the weight that the token gives the expert.
inline Sum weighted(const Matrices& w, int64_t expert, int64_t h, const bf16* a, float weight) {
  Sum sum = product(w, expert, h, h, a);
  sum.value *= weight;
  sum.magnitude *= weight;
  return sum;
}

}  // namespace fathom::lab::mxfp4
