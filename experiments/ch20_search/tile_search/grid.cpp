// C = A B                       n x n, fp32
//
// bytes   12 n^2
// flops   2 n^3
// limit   FMA peak of AVX2
// idea    the fastest of the first 60 points of the grid: all that a budget reaches of it
#include "product.h"

namespace fathom::lab::tile_search {

Launch<Product> grid(const Product& p, Context&) { return searched(p, search::Strategy::grid); }

}  // namespace fathom::lab::tile_search
