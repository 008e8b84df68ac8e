// OpenBLAS on one thread, for variants of kind `library`.
#pragma once

#include <stdlib.h>

#include "experiments/system_library.h"

namespace fathom::lab {

inline constexpr int kRowMajor = 101, kNoTrans = 111;  // of cblas.h
using Sgemv = void (*)(int order, int trans, int m, int n, float alpha, const float* a, int lda,
                       const float* x, int x_step, float beta, float* y, int y_step);
using Sgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float* a,
                       int lda, const float* b, int ldb, float beta, float* c, int ldc);

// Its threads would start when it loads, and spin for a while beside the next timed call.
inline SystemLibrary openblas_on_one_thread() {
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  return SystemLibrary("libopenblas.so.0");
}

}  // namespace fathom::lab
