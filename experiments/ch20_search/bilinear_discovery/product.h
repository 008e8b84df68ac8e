// The problem: C = A B for square row-major fp32 matrices of side n.
#pragma once

#include <cstdint>

#include "lab/problem.h"

namespace fathom::lab::bilinear_discovery {

// Levels of 2 x 2 blocks that a variant goes down, at most.
inline constexpr int kMostLevels = 2;

// Of the multiply-adds with seven products for eight at so many levels; an odd row and column are multiplied
// apart.
double fewest_flops(int64_t n, int levels);

struct Product {
  int64_t n;
  View<const float, 2> a, b;
  View<float, 2> out;
  // Three blocks for each level, of a quarter of the numbers of the level above: 3/4 + 3/16.
  View<float, 1> blocks;

  Product(const Point& at, Arena& arena)
      : n(at["n"]),
        a(arena.input<float>({n, n}, Uniform{-1, 1})),
        b(arena.input<float>({n, n}, Uniform{-1, 1})),
        out(arena.output<float>({n, n})),
        blocks(arena.workspace<float>({n * n})) {}

  // The least that this product takes, as far as the variants know, and so fewer than 2 n^3: a floor and a
  // peak may be no obstacle to a variant that multiplies less.
  Cost cost() const {
    return {.read = a.bytes() + b.bytes(), .written = out.bytes(), .flops = fewest_flops(n, kMostLevels)};
  }

  void check(Checker& checker) const;
  // `relative_rms_error`: of 4,096 elements or all, against double.
  void metrics(CallMetrics& metrics) const;
};

// All of them call the same sgemm (sgemm.h).
Launch<Product> library(const Product&, Context&);
Launch<Product> schoolbook_blocks(const Product&, Context&);
Launch<Product> discovered(const Product&, Context&);
Launch<Product> discovered_twice(const Product&, Context&);

}  // namespace fathom::lab::bilinear_discovery
