// The problem: C = A B for square row-major fp32 matrices of side n, by one loop nest whose tiles are
// parameters of a call.
#pragma once

#include <cmath>
#include <cstdint>

#include "lab/metric.h"
#include "lab/problem.h"
#include "search/strategies.h"

namespace fathom::lab::tile_search {

// A tile of A (rows x depth) stays in L2 and a strip of B (depth x 16) in L1.
struct Tiles {
  int64_t rows = 0, depth = 0, columns = 0;
  bool packed = false;  // blocks of B are copied into the order in which they are read
};

// What a variant's search was: written by each call, read by metrics().
struct Search {
  Tiles tiles;
  int64_t evaluations = 0;
  double seconds      = 0;
  double spread       = 0;  // the time of the slowest point it met over that of the fastest
};

struct Product {
  int64_t n;
  View<const float, 2> a, b;
  View<float, 2> out;
  View<double, 1> report;     // output: the Search of the last call
  View<float, 1> panels;      // workspace: a block of B, in strips of 16 columns
  View<float, 1> last_strip;  // workspace: columns of C beyond the last whole strip

  Product(const Point& at, Arena& arena)
      : n(at["n"]),
        a(arena.input<float>({n, n}, Uniform{-1, 1})),
        b(arena.input<float>({n, n}, Uniform{-1, 1})),
        out(arena.output<float>({n, n})),
        report(arena.output<double>({7})),
        panels(arena.workspace<float>({n * (n + 16)})),
        last_strip(arena.workspace<float>({n * 16})) {}

  Cost cost() const {
    return {.read = a.bytes() + b.bytes(), .written = out.bytes(), .flops = 2.0 * n * n * n};
  }

  Sum expected(int64_t i, int64_t j) const {
    Sum sum{.length = n};
    for (int64_t k = 0; k < n; ++k) {
      const double product = static_cast<double>(a(i, k)) * b(k, j);
      sum.value += product;
      sum.magnitude += std::abs(product);
    }
    return sum;
  }

  void metrics(CallMetrics& metrics) const;
};

// out = a b
void multiply(const Product& p, const Tiles& tiles);

// By the sizes of the caches (Low, Igual, Smith, Quintana-Orti, "Analytical modeling is enough for
// high-performance BLIS", ACM TOMS 43(2), 2016): the strip of B takes half of L1, the tile of A half of L2,
// the block of B half of L3; of the values of the space the largest that do.
Tiles tiles_by_rule();

// 400 points: rows, depth, columns, packed.
const search::TuningSpace& tile_space();

// Calls with these tiles, and reports the search that found them.
Launch<Product> with_tiles(const Search& search);
// What a search may evaluate.
inline constexpr int64_t kBudget = 60;
// Times so many points on the inputs of `p`, each checked first, and takes the fastest.
Launch<Product> searched(const Product& p, search::Strategy strategy, int64_t budget = kBudget);

Launch<Product> rule(const Product&, Context&);
Launch<Product> grid(const Product&, Context&);
Launch<Product> random(const Product&, Context&);
Launch<Product> genetic(const Product&, Context&);
Launch<Product> tpe(const Product&, Context&);
Launch<Product> exhaustive(const Product&, Context&);

}  // namespace fathom::lab::tile_search
