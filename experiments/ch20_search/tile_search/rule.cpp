// C = A B                       n x n, fp32
//
// bytes   12 n^2
// flops   2 n^3
// limit   FMA peak of AVX2
// idea    baseline: tiles by the sizes of the caches. Nothing is timed to find them.
#include "product.h"

namespace fathom::lab::tile_search {

Launch<Product> rule(const Product&, Context&) { return with_tiles({.tiles = tiles_by_rule()}); }

}  // namespace fathom::lab::tile_search
