// The problem: out = sum of x(i), fp32, one core. The numbers have both signs: their sum is far smaller than
// the sum of their magnitudes, and an error of rounding is large beside it.
#pragma once

#include <cmath>

#include "lab/problem.h"

namespace fathom::lab::compensated_sum {

constexpr int64_t kLanes = 8;  // fp32 in a 32-byte register

struct Array {
  View<const float, 1> x;
  View<float, 1> out;  // one element

  Array(const Point& at, Arena& arena)
      : x(arena.input<float>({at["n"]}, Uniform{-1, 1})), out(arena.output<float>({1})) {}

  Cost cost() const {
    return {.read = x.bytes(), .written = out.bytes(), .flops = static_cast<double>(x.extent(0))};
  }
  Sum expected(int64_t) const {
    double sum = 0, magnitude = 0;
    for (int64_t i = 0; i < x.extent(0); ++i) {
      sum += static_cast<double>(x(i));
      magnitude += std::abs(x(i));
    }
    return {.value = sum, .magnitude = magnitude, .length = x.extent(0)};
  }
};

void running(const Array& p, Context& context);
void kahan(const Array& p, Context& context);
void two_sum(const Array& p, Context& context);
void pairwise(const Array& p, Context& context);
void kahan_chains(const Array& p, Context& context);
void two_sum_chains(const Array& p, Context& context);
void double_chains(const Array& p, Context& context);

}  // namespace fathom::lab::compensated_sum
