// out = A (B C)                 p x q, q x r, r x s, fp32
//
// bytes   4 (p q + q r + r s + p s), and 8 q s for the numbers between, which are read p times
// flops   2 (q r s + p q s)
// limit   FMA peak
// idea    the other brackets. With 10x1000x5x500 the product between has half a million numbers, which
//         neither the inputs nor the result contain
#include "chain.h"
#include "product.h"

namespace fathom::lab::matrix_chain_cpu {

void right_first(const Chain& p, Context&) {
  product(p.b, p.c, p.bc);
  product(p.a, p.bc, p.out);
}

}  // namespace fathom::lab::matrix_chain_cpu
