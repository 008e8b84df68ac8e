// out = a b                                     n x n, fp32, tiles of T x T
//
// bytes   12 n^2   but 8 n^3 / T bytes come in where a tile of out stays, and a and b pass tile by tile
// flops   2 n^3
// limit   FMA peak; 9 loads for 8 FMAs, two loads and two FMAs in a cycle: 0.89 of it
// idea    each tile of b is first copied into the order in which it is read, columns of 8: it lies in
//         all sets of a cache alike, however far apart the rows of b are. T^2 numbers are copied for
//         T^3 FMAs.
#include "multiply_tile.h"
#include "product.h"

namespace fathom::lab::tile_size_cpu {

void copied(const Product& p, Context&) {
  const int64_t n = p.n, tile = p.tile;
  for (int64_t i = 0; i < n; i += tile)
    for (int64_t j = 0; j < n; j += tile)
      for (int64_t k = 0; k < n; k += tile) {
        const int64_t columns = std::min(tile, n - j), depth = std::min(tile, n - k);
        const auto strip = [&](int64_t column) {
          return Block<float>{p.copy.data() + column * depth, std::min(kRegisters, columns - column)};
        };
        for (int64_t column = 0; column < columns; column += kRegisters) {
          const Block<float> to = strip(column);
          for (int64_t row = 0; row < depth; ++row)
            if (to.row == kRegisters)
              hn::StoreU(hn::LoadU(kEight, &p.b(k + row, j + column)), kEight, to.at + row * kRegisters);
            else
              std::copy_n(&p.b(k + row, j + column), to.row, to.at + row * to.row);
        }
        const Block<const float> a{&p.a(i, k), p.a.extent(1)};
        multiply_tile(
            a,
            [&](int64_t column) {
              return Block<const float>{strip(column).at, strip(column).row};
            },
            {&p.out(i, j), n}, std::min(tile, n - i), columns, depth, k > 0);
      }
}

}  // namespace fathom::lab::tile_size_cpu
