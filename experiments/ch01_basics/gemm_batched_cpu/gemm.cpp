#include "gemm.h"

#include <algorithm>

namespace fathom::lab::gemm_batched_cpu {

void gemm(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
          float* __restrict__ c, int64_t ldc) {
  for (int64_t i = 0; i < m; ++i) {
    std::fill(c + i * ldc, c + i * ldc + n, 0.0f);
    for (int64_t l = 0; l < k; ++l)
      for (int64_t j = 0; j < n; ++j) c[i * ldc + j] += a[i * lda + l] * b[l * ldb + j];
  }
}

}  // namespace fathom::lab::gemm_batched_cpu
