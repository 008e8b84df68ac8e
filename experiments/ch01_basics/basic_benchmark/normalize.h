// The problem: out(i) = x(i) / norm, n numbers and one divisor, as at the end of a softmax or a
// normalisation.
#pragma once

#include <cmath>
#include <cstdint>

#include "lab/problem.h"

namespace fathom::lab::basic_benchmark {

struct Normalize {
  View<const float, 1> x, norm;  // norm: one number, known only at run time
  View<float, 1> out;

  Normalize(const Point& at, Arena& arena)
      : x(arena.input<float>({at["n"]}, Uniform{-1, 1})),
        norm(arena.input<float>({1}, Uniform{1, 2})),
        out(arena.output<float>({at["n"]})) {}

  Cost cost() const {
    return {.read = x.bytes(), .written = out.bytes(), .flops = static_cast<double>(out.size())};
  }

  Sum expected(int64_t i) const {
    const double quotient = static_cast<double>(x(i)) / norm(0);
    return {.value = quotient, .magnitude = std::abs(quotient), .length = 2};  // the reciprocal, the product
  }
};

void division(const Normalize&, Context&);
void reciprocal(const Normalize&, Context&);

}  // namespace fathom::lab::basic_benchmark
