// The problem: y = A x for a square row-major matrix, fp32, one core.
#pragma once

#include <cmath>
#include <cstdint>

#include "lab/problem.h"

namespace fathom::lab::autovectorization {

struct MatVec {
  View<const float, 2> a;  // n, n
  View<const float, 1> x;
  View<float, 1> y;

  MatVec(const Point& at, Arena& arena)
      : a(arena.input<float>({at["n"], at["n"]}, Uniform{-1, 1})),
        x(arena.input<float>({at["n"]}, Uniform{-1, 1})),
        y(arena.output<float>({at["n"]})) {}

  Cost cost() const {
    return {
        .read = a.bytes() + x.bytes(), .written = y.bytes(), .flops = 2.0 * static_cast<double>(a.size())};
  }

  void check(Checker& checker) const {
    checker.values_in_parallel("y", y, [this](int64_t i) {
      Sum sum{.length = x.size()};
      for (int64_t k = 0; k < x.size(); ++k) {
        const double product = static_cast<double>(a(i, k)) * x(k);
        sum.value += product;
        sum.magnitude += std::abs(product);
      }
      return sum;
    });
  }
};

void as_written(const MatVec&, Context&);
void restricted(const MatVec&, Context&);
void associative(const MatVec&, Context&);
void simd(const MatVec&, Context&);
Launch<MatVec> openblas(const MatVec&, Context&);

}  // namespace fathom::lab::autovectorization
