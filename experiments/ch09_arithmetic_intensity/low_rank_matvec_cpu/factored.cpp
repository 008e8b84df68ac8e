// y = U (V x)                   n x r times r x n, fp32
//
// bytes   8 n r
// flops   4 n r
// limit   read bandwidth of the level that holds U and V
// idea    W = U V is never made: as many numbers as the factors hold, each for one multiply-add
#include "experiments/ch09_arithmetic_intensity/matvec.h"
#include "low_rank.h"

namespace fathom::lab::low_rank_matvec_cpu {

void factored(const LowRank& p, Context&) {
  matvec(p.v, p.x.data(), p.between.data());
  matvec(p.u, p.between.data(), p.out.data());
}

}  // namespace fathom::lab::low_rank_matvec_cpu
