// The problem: one polynomial at n points, out(i) = sum over k of c(k) x(i)^k, by Horner's rule r = r x +
// c(k), k descending: every step needs the one before it.
#pragma once

#include <cmath>

#include "lab/problem.h"

namespace fathom::lab::accumulators {

constexpr int64_t kDegree = 255;  // one point's chain fills the core's reorder buffer
constexpr int64_t kLanes  = 8;    // fp32 in a 32-byte register

struct Polynomial {
  View<const float, 1> x;
  View<const float, 1> c;
  View<float, 1> out;

  Polynomial(const Point& at, Arena& arena)
      : x(arena.input<float>({at["n"]}, Uniform{-1, 1})),
        c(arena.input<float>({kDegree + 1}, Uniform{-1, 1})),
        out(arena.output<float>({at["n"]})) {}

  Cost cost() const {
    return {.read    = x.bytes() + c.bytes(),
            .written = out.bytes(),
            .flops   = 2.0 * kDegree * static_cast<double>(x.extent(0))};
  }
  // Sums ascending powers instead of Horner's rule: a different order than the variants'.
  Sum expected(int64_t i) const {
    double sum = 0, magnitude = 0, power = 1;
    for (int64_t k = 0; k <= kDegree; ++k, power *= x(i)) {
      sum += c(k) * power;
      magnitude += std::abs(c(k) * power);
    }
    return {.value = sum, .magnitude = magnitude, .length = kDegree + 1};
  }
};

void one_chain(const Polynomial& p, Context& context);
void two_chains(const Polynomial& p, Context& context);
void four_chains(const Polynomial& p, Context& context);
void eight_chains(const Polynomial& p, Context& context);
void twelve_chains(const Polynomial& p, Context& context);
void sixteen_chains(const Polynomial& p, Context& context);

}  // namespace fathom::lab::accumulators
