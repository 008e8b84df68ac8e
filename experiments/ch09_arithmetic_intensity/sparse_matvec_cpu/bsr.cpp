// y = A x                       b blocks of 8 x 8 places, fp32, and an int32 column for each block
//
// bytes   260 b + n / 2
// flops   128 b, zeros inside of blocks included
// limit   read bandwidth of the level that holds the blocks
// idea    an index for 64 places. A column of a block is a vector: eight rows of y are summed side by side,
//         in whole vectors and without a gather. Where nonzeros do not lie in blocks, zeros are stored.
#include <immintrin.h>

#include <algorithm>

#include "sparse_matrix.h"

namespace fathom::lab::sparse_matvec_cpu {

void bsr(const SparseMatrix& p, Context&) {
  constexpr int64_t kChains = 4;
  for (int64_t i = 0; i < p.block_rows(); ++i) {
    __m256 sum[kChains];
    for (__m256& vector : sum) vector = _mm256_setzero_ps();
    for (int32_t k = p.block_begin(i); k < p.block_begin(i + 1); ++k) {
      const float* block = &p.block(k, 0);
      const float* x     = &p.x(p.block_column(k) * kBlock);
#pragma GCC unroll 8
      for (int64_t c = 0; c < kBlock; ++c)
        sum[c % kChains] = _mm256_fmadd_ps(_mm256_loadu_ps(block + c * kBlock), _mm256_broadcast_ss(x + c),
                                           sum[c % kChains]);
    }
    const __m256 rows = _mm256_add_ps(_mm256_add_ps(sum[0], sum[1]), _mm256_add_ps(sum[2], sum[3]));
    float* const out  = &p.out(i * kBlock);
    if ((i + 1) * kBlock <= p.n) {
      _mm256_storeu_ps(out, rows);
    } else {
      float last[kBlock];
      _mm256_storeu_ps(last, rows);
      std::copy_n(last, p.n - i * kBlock, out);
    }
  }
}

}  // namespace fathom::lab::sparse_matvec_cpu
