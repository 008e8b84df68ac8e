// RMSNorm without its weights: y(i, j) = x(i, j) / sqrt(mean_j x(i, j)^2 + epsilon), fp32. A row must be read
// to its end before the first of its outputs can be written. Rows are multiples of 4 numbers, so that they
// begin and end at multiples of 16 bytes. Definitions: rms_norm_problem.h.
#pragma once

#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab {

struct RmsNorm {
  static constexpr float kEpsilon = 1e-5f;

  View<const float, 2> in;  // rows x width
  View<float, 2> out;

  RmsNorm(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;

  int64_t rows() const { return in.extent(0); }
  int64_t width() const { return in.extent(1); }
};

}  // namespace fathom::lab
