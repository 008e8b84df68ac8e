// Definitions of rms_norm.h, for the files that declare experiments.
#pragma once

#include <cmath>
#include <vector>

#include "experiments/ch10_pipelining/rms_norm.h"
#include "lab/problem.h"

namespace fathom::lab {

inline RmsNorm::RmsNorm(const Point& at, Arena& arena)
    : in(arena.input<float>({at["rows"], at["width"]}, Uniform{-1, 1})),
      out(arena.output<float>({at["rows"], at["width"]})) {
  FATHOM_EXPECT(width() > 0 && width() % 4 == 0, "the width of a row is a multiple of 4");
}

// A multiply-add into the sum of squares and a multiplication for each number.
inline Cost RmsNorm::cost() const {
  return {.read = in.bytes(), .written = out.bytes(), .flops = 3.0 * static_cast<double>(in.size())};
}

inline void RmsNorm::check(Checker& checker) const {
  std::vector<double> scales(static_cast<size_t>(rows()), 0);  // 0: not computed yet
  checker.values("out", out, [&](int64_t i, int64_t j) {
    double& scale = scales[static_cast<size_t>(i)];
    if (scale == 0) {
      double squares = 0;
      for (int64_t k = 0; k < width(); ++k) squares += static_cast<double>(in(i, k)) * in(i, k);
      scale = 1 / std::sqrt(squares / static_cast<double>(width()) + static_cast<double>(kEpsilon));
    }
    const double value = in(i, j) * scale;
    // All squares are positive, so the error of their sum is relative; five roundings surround it: the
    // square, the mean, epsilon, the reciprocal root, the product.
    return Sum{.value = value, .magnitude = std::abs(value), .length = width() + 5};
  });
}

}  // namespace fathom::lab
