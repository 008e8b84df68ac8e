// The problem: batches of different numbers of rows, one after another, as a server gets them. Batch i has
// 2 + i rows of D; of each row
//   y(t, d) = x(t, d) * weight(d) / sqrt(mean_d x(t, d)^2 + epsilon)
#pragma once

#include <cmath>

#include "lab/problem.h"

namespace fathom::lab::dynamic_rows {

inline constexpr float kEpsilon = 1e-5f;

struct Rows {
  int64_t batches;
  View<const float, 2> x;
  View<const float, 1> weight;
  View<float, 2> out;

  Rows(const Point& at, Arena& arena)
      : batches(at["batches"]),
        x(arena.input<float>({first_row(at["batches"]), at["dim"]}, Normal{})),
        weight(arena.input<float>({at["dim"]}, Uniform{0.5, 1.5})),
        out(arena.output<float>({first_row(at["batches"]), at["dim"]})) {}

  static int64_t rows(int64_t batch) { return 2 + batch; }
  static int64_t first_row(int64_t batch) { return 2 * batch + batch * (batch - 1) / 2; }

  // For each element: a square and its sum, two multiplications.
  Cost cost() const {
    return {.read    = x.bytes() + weight.bytes(),
            .written = out.bytes(),
            .flops   = 4.0 * static_cast<double>(x.size())};
  }

  Sum expected(int64_t t, int64_t d) const {
    const int64_t dim = x.extent(1);
    double squares    = 0;
    for (int64_t i = 0; i < dim; ++i) squares += static_cast<double>(x(t, i)) * x(t, i);
    const double value =
        x(t, d) * static_cast<double>(weight(d)) / std::sqrt(squares / static_cast<double>(dim) + kEpsilon);
    // Terms of the sum are positive; seven roundings surround it: the square, the mean, epsilon, the root,
    // its reciprocal, two multiplications.
    return {.value = value, .magnitude = std::abs(value), .length = dim + 7};
  }
};

void each_shape(const Rows&, Context&);
void symbol(const Rows&, Context&);
Launch<Rows> kept(const Rows&, Context&);

}  // namespace fathom::lab::dynamic_rows
