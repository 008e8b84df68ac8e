// C = A B                       n x n, fp32
//
// bytes   12 n^2
// flops   2 n^3
// limit   FMA peak of AVX2
// idea    the fastest of 60 points that a genetic algorithm makes of fast ones by crossover and mutation
#include "product.h"

namespace fathom::lab::tile_search {

Launch<Product> genetic(const Product& p, Context&) { return searched(p, search::Strategy::genetic); }

}  // namespace fathom::lab::tile_search
