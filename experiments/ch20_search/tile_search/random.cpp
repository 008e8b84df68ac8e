// C = A B                       n x n, fp32
//
// bytes   12 n^2
// flops   2 n^3
// limit   FMA peak of AVX2
// idea    the fastest of 60 random points: the yardstick of every guided search
#include "product.h"

namespace fathom::lab::tile_search {

Launch<Product> random(const Product& p, Context&) { return searched(p, search::Strategy::random); }

}  // namespace fathom::lab::tile_search
