// C = A B in 2 x 2 blocks       n x n, fp32
//
// bytes   12 n^2
// flops   2 n^3
// limit   FMA peak of one core
// idea    eight products of blocks, C(i, k) = A(i, 0) B(0, k) + A(i, 1) B(1, k): what the division into calls
//         costs, before anything is saved. The second product of a block of C is added by sgemm itself.
#include "product.h"
#include "scheme_product.h"

namespace fathom::lab::bilinear_discovery {

Launch<Product> schoolbook_blocks(const Product&, Context&) {
  return [by_blocks = SchemeProduct(search::schoolbook({2, 2, 2}), 1)](const Product& p, Context&) {
    by_blocks(p.n, {p.a.data(), p.n}, {p.b.data(), p.n}, {p.out.data(), p.n}, p.blocks.data());
  };
}

}  // namespace fathom::lab::bilinear_discovery
