// y = A x                       n x n, fp32, all places stored
//
// bytes   4 n^2
// flops   2 n^2
// limit   read bandwidth of the level that holds the matrix
// idea    the yardstick of the baseline: cblas_sgemv of OpenBLAS on one thread
#include "experiments/ch09_arithmetic_intensity/openblas.h"
#include "sparse_matrix.h"

namespace fathom::lab::sparse_matvec_cpu {

Launch<SparseMatrix> openblas(const SparseMatrix&, Context&) {
  const auto sgemv = openblas_on_one_thread().function<Sgemv>("cblas_sgemv");
  return [=](const SparseMatrix& q, Context&) {
    const int n = static_cast<int>(q.n);
    if (n == 0) return;  // OpenBLAS rejects a leading dimension of 0
    sgemv(kRowMajor, kNoTrans, n, n, 1.0f, q.dense.data(), n, q.x.data(), 1, 0.0f, q.out.data(), 1);
  };
}

}  // namespace fathom::lab::sparse_matvec_cpu
