// out = sum of x(i)                       n elements, fp32
//
// bytes   4 n
// flops   n in fp64
// limit   bandwidth of the level that holds the array
// idea    double precision in eight vectors of four: for eight elements two conversions and two additions
#include <immintrin.h>

#include "array.h"

namespace fathom::lab::compensated_sum {

void double_chains(const Array& p, Context&) {
  constexpr int64_t kChains = 8;
  constexpr int64_t kHalf   = kLanes / 2;  // fp64 in a 32-byte register
  const int64_t n           = p.x.extent(0);
  const float* x            = p.x.data();
  __m256d s[kChains];
  for (__m256d& vector : s) vector = _mm256_setzero_pd();
  int64_t i = 0;
  for (; i + kChains * kHalf <= n; i += kChains * kHalf)
    for (int64_t q = 0; q < kChains; ++q)
      s[q] = _mm256_add_pd(s[q], _mm256_cvtps_pd(_mm_loadu_ps(x + i + q * kHalf)));

  double sum = 0;
  for (const __m256d& vector : s) {
    alignas(32) double lanes[kHalf];
    _mm256_store_pd(lanes, vector);
    for (const double lane : lanes) sum += lane;
  }
  for (; i < n; ++i) sum += static_cast<double>(x[i]);
  p.out(0) = static_cast<float>(sum);
}

}  // namespace fathom::lab::compensated_sum
