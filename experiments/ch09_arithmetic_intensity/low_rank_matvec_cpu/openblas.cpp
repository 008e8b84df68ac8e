// y = U (V x)                   n x r times r x n, fp32
//
// bytes   8 n r
// flops   4 n r
// limit   read bandwidth of the level that holds U and V
// idea    the yardstick: two calls of cblas_sgemv of OpenBLAS on one thread
#include "experiments/ch09_arithmetic_intensity/openblas.h"
#include "low_rank.h"

namespace fathom::lab::low_rank_matvec_cpu {

Launch<LowRank> openblas_factored(const LowRank&, Context&) {
  const auto sgemv = openblas_on_one_thread().function<Sgemv>("cblas_sgemv");
  return [=](const LowRank& q, Context&) {
    const int n = static_cast<int>(q.n), r = static_cast<int>(q.rank);
    if (n == 0) return;  // OpenBLAS rejects a leading dimension of 0
    sgemv(kRowMajor, kNoTrans, r, n, 1.0f, q.v.data(), n, q.x.data(), 1, 0.0f, q.between.data(), 1);
    sgemv(kRowMajor, kNoTrans, n, r, 1.0f, q.u.data(), r, q.between.data(), 1, 0.0f, q.out.data(), 1);
  };
}

}  // namespace fathom::lab::low_rank_matvec_cpu
