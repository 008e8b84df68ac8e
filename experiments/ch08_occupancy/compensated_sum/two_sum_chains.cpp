// out = sum of x(i)                       n elements, fp32
//
// bytes   4 n
// flops   7 n executed
// limit   bandwidth of the level that holds the array
// idea    TwoSum in four vectors: seven additions a vector on two adders, 3.5 cycles for 32 bytes
#include <immintrin.h>

#include "array.h"
#include "compensated.h"

namespace fathom::lab::compensated_sum {

void two_sum_chains(const Array& p, Context&) {
  constexpr int64_t kChains = 4;
  const int64_t n           = p.x.extent(0);
  const float* x            = p.x.data();
  __m256 sum[kChains], error[kChains];
  for (int64_t q = 0; q < kChains; ++q) sum[q] = error[q] = _mm256_setzero_ps();
  int64_t i = 0;
  for (; i + kChains * kLanes <= n; i += kChains * kLanes)
#pragma GCC unroll 8
    for (int64_t q = 0; q < kChains; ++q) {
      const __m256 a    = sum[q];
      const __m256 b    = _mm256_loadu_ps(x + i + q * kLanes);
      const __m256 s    = _mm256_add_ps(a, b);
      const __m256 part = _mm256_sub_ps(s, a);
      const __m256 lost = _mm256_add_ps(_mm256_sub_ps(a, _mm256_sub_ps(s, part)), _mm256_sub_ps(b, part));
      sum[q]            = s;
      error[q]          = _mm256_add_ps(error[q], lost);
    }

  Compensated total;
  for (int64_t q = 0; q < kChains; ++q) {
    alignas(32) float sums[kLanes], errors[kLanes];
    _mm256_store_ps(sums, sum[q]);
    _mm256_store_ps(errors, error[q]);
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      total.add(sums[lane]);
      total.error += errors[lane];
    }
  }
  for (; i < n; ++i) total.add(x[i]);
  p.out(0) = total.value();
}

}  // namespace fathom::lab::compensated_sum
