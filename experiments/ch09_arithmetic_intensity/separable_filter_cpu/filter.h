// The problem: an image filtered by a kernel that is a product of a column and a row, fp32,
//   out(i, j) = sum over a, b < taps of column(a) row(b) in(i + a, j + b)
// `in` is larger than `out` by the rim that this needs, so no pixel is special.
#pragma once

#include <cmath>

#include "lab/problem.h"

namespace fathom::lab::separable_filter_cpu {

struct Filter {
  View<const float, 2> in;  // n + taps - 1, n + taps - 1
  View<const float, 1> column;
  View<const float, 1> row;
  View<float, 2> out;      // n, n
  View<float, 2> columns;  // workspace: n, n + taps - 1; the image after the column alone

  Filter(const Point& at, Arena& arena)
      : in(arena.input<float>({at["n"] + at["taps"] - 1, at["n"] + at["taps"] - 1}, Uniform{0, 1})),
        column(arena.input<float>({at["taps"]}, Uniform{0, 1})),
        row(arena.input<float>({at["taps"]}, Uniform{0, 1})),
        out(arena.output<float>({at["n"], at["n"]})),
        columns(arena.workspace<float>({at["n"], at["n"] + at["taps"] - 1})) {}

  int64_t taps() const { return row.size(); }

  // The least work known: taps multiply-adds a pixel for the column, and as many for the row.
  Cost cost() const {
    return {.read    = in.bytes() + column.bytes() + row.bytes(),
            .written = out.bytes(),
            .flops   = 4.0 * static_cast<double>(taps() * out.size())};
  }

  // The double sum of the definition, not two passes.
  Sum expected(int64_t i, int64_t j) const {
    double sum = 0;
    for (int64_t a = 0; a < taps(); ++a)
      for (int64_t b = 0; b < taps(); ++b) sum += static_cast<double>(column(a)) * row(b) * in(i + a, j + b);
    // No term is negative. The direct sum has the most roundings: one for the weight, one for each addition.
    return {.value = sum, .magnitude = sum, .length = taps() * taps() + 1};
  }
};

void direct(const Filter&, Context&);
void two_passes(const Filter&, Context&);
void two_passes_tiled(const Filter&, Context&);

}  // namespace fathom::lab::separable_filter_cpu
