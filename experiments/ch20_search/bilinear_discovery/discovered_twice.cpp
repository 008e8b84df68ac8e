// C = A B in 4 x 4 blocks       n x n, fp32
//
// bytes   12 n^2, the blocks of the first level, and seven times those of the second, a quarter as large
// flops   49/64 of 2 n^3, and 18 additions of n^2 / 4 numbers and 126 of n^2 / 16
// limit   FMA peak of one core
// idea    the same scheme again for each of the seven products: 49 for 64
#include "product.h"
#include "scheme_product.h"

namespace fathom::lab::bilinear_discovery {

Launch<Product> discovered_twice(const Product&, Context&) {
  return [by_blocks = SchemeProduct(discover_seven_products(), 2)](const Product& p, Context&) {
    by_blocks(p.n, {p.a.data(), p.n}, {p.b.data(), p.n}, {p.out.data(), p.n}, p.blocks.data());
  };
}

}  // namespace fathom::lab::bilinear_discovery
