// C = A B                       n x n, fp32
//
// bytes   12 n^2
// flops   2 n^3
// limit   FMA peak of AVX2
// idea    the fastest of 60 points that a model asks for, the tree-structured Parzen estimator: which tiles
//         occur among the fast points, and which among the rest
#include "product.h"

namespace fathom::lab::tile_search {

Launch<Product> tpe(const Product& p, Context&) { return searched(p, search::Strategy::tpe); }

}  // namespace fathom::lab::tile_search
