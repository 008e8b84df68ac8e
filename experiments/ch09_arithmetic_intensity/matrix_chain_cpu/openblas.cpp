// out = (A B) C                 p x q, q x r, r x s, fp32
//
// bytes   4 (p q + q r + r s + p s), and the p r numbers between in a cache
// flops   2 (p q r + p r s)
// limit   FMA peak
// idea    the yardstick: two calls of cblas_sgemm of OpenBLAS on one thread, in the cheaper order
#include "experiments/ch09_arithmetic_intensity/openblas.h"
#include "chain.h"

namespace fathom::lab::matrix_chain_cpu {
namespace {

void multiply(Sgemm sgemm, View<const float, 2> a, View<const float, 2> b, View<float, 2> out) {
  const int m = static_cast<int>(a.extent(0)), k = static_cast<int>(a.extent(1)),
            n = static_cast<int>(b.extent(1));
  if (m == 0 || n == 0) return;
  // OpenBLAS rejects a leading dimension of 0.
  sgemm(kRowMajor, kNoTrans, kNoTrans, m, n, k, 1.0f, a.data(), std::max(k, 1), b.data(), n, 0.0f, out.data(),
        n);
}

}  // namespace

Launch<Chain> openblas_left_first(const Chain&, Context&) {
  const auto sgemm = openblas_on_one_thread().function<Sgemm>("cblas_sgemm");
  return [=](const Chain& q, Context&) {
    multiply(sgemm, q.a, q.b, q.ab);
    multiply(sgemm, q.ab, q.c, q.out);
  };
}

}  // namespace fathom::lab::matrix_chain_cpu
