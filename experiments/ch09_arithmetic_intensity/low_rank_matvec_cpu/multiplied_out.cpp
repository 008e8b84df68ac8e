// y = W x                       n x n, fp32
//
// bytes   4 n^2
// flops   2 n^2
// limit   read bandwidth of the level that holds W
// idea    baseline: W as if nothing were known of it
#include "experiments/ch09_arithmetic_intensity/matvec.h"
#include "low_rank.h"

namespace fathom::lab::low_rank_matvec_cpu {

void multiplied_out(const LowRank& p, Context&) { matvec(p.w, p.x.data(), p.out.data()); }

}  // namespace fathom::lab::low_rank_matvec_cpu
