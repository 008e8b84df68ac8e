// out = a b                     n x n, fp32, blocks of `columns` x `depth` of b and of `rows` x `depth` of a
//
// bytes   12 n^2; out passes n / depth times, a passes n / columns times
// flops   2 n^3
// limit   FMA peak of AVX2
// idea    the loops of Goto and van de Geijn (Anatomy of High-Performance Matrix Multiplication, ACM TOMS
//         34(3), 2008) around a register tile of 6 x 16, with sizes that are known at run time only
#include <algorithm>

#include "experiments/tile_product.h"
#include "product.h"

namespace fathom::lab::tile_search {
namespace {

// Columns from..from + width of b, kPanel wide with zeros behind them.
void copy_strip(const float* from, int64_t row, int64_t width, int64_t depth, float* to) {
  for (int64_t k = 0; k < depth; ++k) {
    std::copy_n(from + k * row, width, to + k * kPanel);
    std::fill_n(to + k * kPanel + width, kPanel - width, 0.0f);
  }
}

}  // namespace

void multiply(const Product& p, const Tiles& tiles) {
  const int64_t n = p.n;
  for (int64_t j = 0; j < n; j += tiles.columns)
    for (int64_t k = 0; k < n; k += tiles.depth) {
      const int64_t columns = std::min(tiles.columns, n - j), depth = std::min(tiles.depth, n - k);
      const int64_t whole = columns / kPanel * kPanel, rest = columns - whole;
      const float* const b = &p.b(k, j);
      float* const panels  = p.panels.data();
      // The last strip is always copied: a row of it would end in the next row of b.
      float* const last = panels + whole * depth;
      if (tiles.packed)
        for (int64_t strip = 0; strip < whole; strip += kPanel)
          copy_strip(b + strip, n, kPanel, depth, panels + strip * depth);
      if (rest > 0) copy_strip(b + whole, n, rest, depth, last);
      for (int64_t i = 0; i < n; i += tiles.rows) {
        const int64_t rows   = std::min(tiles.rows, n - i);
        const float* const a = &p.a(i, k);
        float* const c       = &p.out(i, j);
        product(rows, whole, depth, a, n, tiles.packed ? packed_panels(panels, depth) : rows_of(b, n), c, n,
                k > 0);
        if (rest == 0) continue;
        float* const strip = p.last_strip.data();
        product(rows, kPanel, depth, a, n, packed_panels(last, depth), strip, kPanel, false);
        for (int64_t row = 0; row < rows; ++row)
          for (int64_t column = 0; column < rest; ++column) {
            float& to       = c[row * n + whole + column];
            const float sum = strip[row * kPanel + column];
            to              = k > 0 ? to + sum : sum;
          }
      }
    }
}

}  // namespace fathom::lab::tile_search
