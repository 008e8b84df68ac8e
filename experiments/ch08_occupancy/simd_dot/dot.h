// The problem: out = sum of a(i) b(i), fp32, one core.
#pragma once

#include <cmath>

#include "lab/problem.h"

namespace fathom::lab::simd_dot {

struct Dot {
  View<const float, 1> a, b;
  View<float, 1> out;  // one element

  Dot(const Point& at, Arena& arena)
      : a(arena.input<float>({at["n"]}, Uniform{-1, 1})),
        b(arena.input<float>({at["n"]}, Uniform{-1, 1})),
        out(arena.output<float>({1})) {}

  Cost cost() const {
    return {.read    = a.bytes() + b.bytes(),
            .written = out.bytes(),
            .flops   = 2.0 * static_cast<double>(a.extent(0))};
  }
  Sum expected(int64_t) const {
    double sum = 0, magnitude = 0;
    for (int64_t i = 0; i < a.extent(0); ++i) {
      const double product = static_cast<double>(a(i)) * b(i);
      sum += product;
      magnitude += std::abs(product);
    }
    return {.value = sum, .magnitude = magnitude, .length = a.extent(0)};
  }
};

void scalar(const Dot& p, Context& context);
void omp_simd(const Dot& p, Context& context);
void highway(const Dot& p, Context& context);
Launch<Dot> prepare_openblas(const Dot& p, Context& context);

}  // namespace fathom::lab::simd_dot
