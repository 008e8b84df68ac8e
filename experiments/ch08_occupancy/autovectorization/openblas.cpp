// y = A x                                       n x n, fp32
//
// bytes   4 n^2
// flops   2 n^2
// limit   bandwidth of the level that holds A
// idea    the library: OpenBLAS on one thread
#include <stdlib.h>

#include "experiments/system_library.h"
#include "matvec.h"

namespace fathom::lab::autovectorization {
namespace {

// The part of OpenBLAS's C interface (cblas.h) that we use.
using Sgemv = void (*)(int order, int transpose, int m, int n, float alpha, const float* a, int a_row,
                       const float* x, int x_step, float beta, float* y, int y_step);
constexpr int kRowMajor = 101, kNoTranspose = 111;

}  // namespace

Launch<MatVec> openblas(const MatVec&, Context&) {
  // OpenBLAS starts its threads when it loads, and they spin for a while beside the next timed call.
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  const auto sgemv = SystemLibrary("libopenblas.so.0").function<Sgemv>("cblas_sgemv");
  return [sgemv](const MatVec& p, Context&) {
    const int n = static_cast<int>(p.x.size());
    if (n == 0) return;  // BLAS asks for rows of at least one element
    sgemv(kRowMajor, kNoTranspose, n, n, 1, p.a.data(), n, p.x.data(), 1, 0, p.y.data(), 1);
  };
}

}  // namespace fathom::lab::autovectorization
