// out = (A B) C                 p x q, q x r, r x s, fp32
//
// bytes   4 (p q + q r + r s + p s), and the p r numbers between in a cache
// flops   2 (p q r + p r s)
// limit   FMA peak
// idea    baseline: from left to right, as it is written. With 10x1000x5x500 the product between has 50
//         numbers
#include "chain.h"
#include "product.h"

namespace fathom::lab::matrix_chain_cpu {

void left_first(const Chain& p, Context&) {
  product(p.a, p.b, p.ab);
  product(p.ab, p.c, p.out);
}

}  // namespace fathom::lab::matrix_chain_cpu
