// The problem: out = sqrt(sin(x)) for n numbers in [0, pi], fp32.
#pragma once

#include <cmath>

#include "lab/problem.h"

namespace fathom::lab::fused_elementwise_cpu {

struct Elementwise {
  // The largest float below pi. Beyond pi the sine is negative and has no root; pi rounded to float lies
  // beyond it.
  static constexpr double kLargest = 0x1.921fb4p+1;

  View<const float, 1> x;
  View<float, 1> out;

  Elementwise(const Point& at, Arena& arena)
      : x(arena.input<float>({at["n"]}, Uniform{0, kLargest})), out(arena.output<float>({at["n"]})) {}

  // For each element: 3 to fold x into [0, pi/2], 10 for the polynomial, the root.
  Cost cost() const {
    return {.read = x.bytes(), .written = out.bytes(), .flops = 14.0 * static_cast<double>(x.size())};
  }

  Sum expected(int64_t i) const {
    const double angle = x(i), value = std::sqrt(std::sin(angle));
    // Eight roundings in a row: fold, square, three steps of the polynomial, two to finish the sine, the
    // root. None is amplified: x is exact, and pi - x is right to within a rounding of itself.
    return {.value = value, .magnitude = value, .length = 8};
  }
};

void two_pass(const Elementwise&, Context&);
void blocked(const Elementwise&, Context&);
void fused(const Elementwise&, Context&);
void streamed(const Elementwise&, Context&);
void prefetched(const Elementwise&, Context&);
void threads(const Elementwise&, Context&);

}  // namespace fathom::lab::fused_elementwise_cpu
