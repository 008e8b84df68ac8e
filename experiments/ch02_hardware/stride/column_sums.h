// The problem: out(j) = sum of in(i, j) over i, fp32, n x n, row-major.
#pragma once

#include <cmath>

#include "lab/problem.h"

namespace fathom::lab::stride {

struct ColumnSums {
  View<const float, 2> in;
  View<float, 1> out;

  ColumnSums(const Point& at, Arena& arena)
      : in(arena.input<float>({at["n"], at["n"]}, Uniform{-1, 1})), out(arena.output<float>({at["n"]})) {}

  Cost cost() const {
    return {.read = in.bytes(), .written = out.bytes(), .flops = static_cast<double>(in.size())};
  }
  Sum expected(int64_t j) const {
    Sum sum{.length = in.extent(0)};
    for (int64_t i = 0; i < in.extent(0); ++i) {
      sum.value += in(i, j);
      sum.magnitude += std::abs(in(i, j));
    }
    return sum;
  }
};

void column_order(const ColumnSums& p, Context& context);
void row_order(const ColumnSums& p, Context& context);

}  // namespace fathom::lab::stride
