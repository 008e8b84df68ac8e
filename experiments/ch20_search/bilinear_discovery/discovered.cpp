// C = A B in 2 x 2 blocks       n x n, fp32
//
// bytes   12 n^2, and blocks of n^2 / 4 numbers: 10 sums of A's and B's, 12 times a product into one of C
// flops   7/8 of 2 n^3, and 18 additions of n^2 / 4 numbers
// limit   FMA peak of one core
// idea    seven products of sums of blocks. A walk in the flip graph finds the scheme in prepare(), in
//         milliseconds, where it is verified in integers.
#include "product.h"
#include "scheme_product.h"

namespace fathom::lab::bilinear_discovery {

Launch<Product> discovered(const Product&, Context&) {
  return [by_blocks = SchemeProduct(discover_seven_products(), 1)](const Product& p, Context&) {
    by_blocks(p.n, {p.a.data(), p.n}, {p.b.data(), p.n}, {p.out.data(), p.n}, p.blocks.data());
  };
}

}  // namespace fathom::lab::bilinear_discovery
