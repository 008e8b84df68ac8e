// The inner product of all variants: dnnl_sgemm of oneDNN, row-major, on the calling thread. Its kernels are
// generated for the CPU at run time. OpenBLAS chooses its kernels by a list of CPUs, and takes those for SSE3
// where it does not know one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "experiments/system_library.h"

namespace fathom::lab::bilinear_discovery {

class Sgemm {
 public:
  Sgemm() {
    const SystemLibrary library("libdnnl.so.2");
    gemm_        = library.function<Function>("dnnl_sgemm");
    set_threads_ = library.function<void (*)(int)>("omp_set_num_threads");  // of its OpenMP runtime
  }

  // c = alpha a b [+ c], a of m x k and b of k x n.
  void operator()(int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t a_row, const float* b,
                  int64_t b_row, bool add, float* c, int64_t c_row) const {
    if (m == 0 || n == 0) return;  // it rejects a leading dimension of 0
    set_threads_(1);
    const int status = gemm_('N', 'N', m, n, k, alpha, a, a_row, b, b_row, add ? 1.0f : 0.0f, c, c_row);
    FATHOM_EXPECT(status == 0, "dnnl_sgemm refused the product");
  }

 private:
  using Function = int (*)(char trans_a, char trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                           const float* a, int64_t lda, const float* b, int64_t ldb, float beta, float* c,
                           int64_t ldc);
  Function gemm_;
  void (*set_threads_)(int);
};

}  // namespace fathom::lab::bilinear_discovery
