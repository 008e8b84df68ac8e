// One matrix product of any shape: a general routine that knows nothing of batches.
#pragma once

#include <cstdint>

namespace fathom::lab::gemm_batched_cpu {

// c (m x n) = a (m x k) b (k x n), row-major; lda, ldb and ldc are the distances between rows.
void gemm(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
          int64_t ldc);

}  // namespace fathom::lab::gemm_batched_cpu
