// C = A B                       n x n, fp32
//
// bytes   12 n^2
// flops   2 n^3
// limit   FMA peak of AVX2
// idea    the fastest of all points: what there is to find, at seven times the price
#include "product.h"

namespace fathom::lab::tile_search {

Launch<Product> exhaustive(const Product& p, Context&) {
  return searched(p, search::Strategy::grid, search::size(tile_space()));
}

}  // namespace fathom::lab::tile_search
