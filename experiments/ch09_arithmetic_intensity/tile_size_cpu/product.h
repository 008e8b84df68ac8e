// The problem: C = A B for square row-major fp32 matrices, cut into tiles of `tile` rows and columns. The
// rows of A and B are `padding` floats longer than n.
#pragma once

#include <cmath>
#include <cstdint>

#include "lab/problem.h"

namespace fathom::lab::tile_size_cpu {

struct Product {
  int64_t n, tile;
  View<const float, 2> a, b;  // n, n + padding
  View<float, 2> out;         // n, n
  View<float, 1> copy;        // workspace: one tile of b

  Product(const Point& at, Arena& arena)
      : n(at["n"]),
        tile(at["tile"]),
        a(arena.input<float>({n, n + at["padding"]}, Uniform{-1, 1})),
        b(arena.input<float>({n, n + at["padding"]}, Uniform{-1, 1})),
        out(arena.output<float>({n, n})),
        copy(arena.workspace<float>({tile * tile})) {}

  Cost cost() const { return {.read = 2 * out.bytes(), .written = out.bytes(), .flops = 2.0 * n * n * n}; }

  Sum expected(int64_t i, int64_t j) const {
    Sum sum{.length = n};
    for (int64_t k = 0; k < n; ++k) {
      const double product = static_cast<double>(a(i, k)) * b(k, j);
      sum.value += product;
      sum.magnitude += std::abs(product);
    }
    return sum;
  }
};

void tiled(const Product&, Context&);
void copied(const Product&, Context&);

}  // namespace fathom::lab::tile_size_cpu
