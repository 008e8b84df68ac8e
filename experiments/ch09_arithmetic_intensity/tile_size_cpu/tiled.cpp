// out = a b                                     n x n, fp32, tiles of T x T
//
// bytes   12 n^2   but 8 n^3 / T bytes come in where a tile of out stays, and a and b pass tile by tile
// flops   2 n^3
// limit   FMA peak; 9 loads for 8 FMAs, two loads and two FMAs in a cycle: 0.89 of it
// idea    baseline: three tiles at a time. With T = n there is no tile but that of the registers, 8 x 8.
#include "multiply_tile.h"
#include "product.h"

namespace fathom::lab::tile_size_cpu {

void tiled(const Product& p, Context&) {
  const int64_t n = p.n, tile = p.tile;
  for (int64_t i = 0; i < n; i += tile)
    for (int64_t j = 0; j < n; j += tile)
      for (int64_t k = 0; k < n; k += tile) {
        const Block<const float> a{&p.a(i, k), p.a.extent(1)}, b{&p.b(k, j), p.b.extent(1)};
        multiply_tile(
            a, [b](int64_t column) { return b.from(0, column); }, {&p.out(i, j), n}, std::min(tile, n - i),
            std::min(tile, n - j), std::min(tile, n - k), k > 0);
      }
}

}  // namespace fathom::lab::tile_size_cpu
