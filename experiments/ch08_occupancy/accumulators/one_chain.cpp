// out(i) = sum over k of c(k) x(i)^k                       n points, degree 255, fp32
//
// bytes   8 n, and 1 KiB of coefficients that stay in L1
// flops   510 n
// limit   FMA peak: 2 x 8 lanes a cycle
// idea    baseline: Horner's rule for 8 points in one register. One FMA in 4 cycles, its latency.
#include "horner.h"

namespace fathom::lab::accumulators {

void one_chain(const Polynomial& p, Context&) { horner_rest(p, 0); }

}  // namespace fathom::lab::accumulators
