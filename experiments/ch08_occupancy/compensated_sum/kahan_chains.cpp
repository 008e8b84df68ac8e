// out = sum of x(i)                       n elements, fp32
//
// bytes   4 n
// flops   4 n executed
// limit   bandwidth of the level that holds the array
// idea    Kahan's sum in six vectors: a step waits for four additions, 12 cycles, and occupies the two adders
//         for 2, so six of them side by side keep the adders busy
#include <immintrin.h>

#include "array.h"
#include "compensated.h"

namespace fathom::lab::compensated_sum {

void kahan_chains(const Array& p, Context&) {
  constexpr int64_t kChains = 6;
  const int64_t n           = p.x.extent(0);
  const float* x            = p.x.data();
  __m256 sum[kChains], excess[kChains];
  for (int64_t q = 0; q < kChains; ++q) sum[q] = excess[q] = _mm256_setzero_ps();
  int64_t i = 0;
  for (; i + kChains * kLanes <= n; i += kChains * kLanes)
#pragma GCC unroll 8
    for (int64_t q = 0; q < kChains; ++q) {
      const __m256 y = _mm256_sub_ps(_mm256_loadu_ps(x + i + q * kLanes), excess[q]);
      const __m256 s = _mm256_add_ps(sum[q], y);
      excess[q]      = _mm256_sub_ps(_mm256_sub_ps(s, sum[q]), y);
      sum[q]         = s;
    }

  Compensated total;
  for (int64_t q = 0; q < kChains; ++q) {
    alignas(32) float sums[kLanes], excesses[kLanes];
    _mm256_store_ps(sums, sum[q]);
    _mm256_store_ps(excesses, excess[q]);
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      total.add(sums[lane]);
      total.error -= excesses[lane];
    }
  }
  for (; i < n; ++i) total.add(x[i]);
  p.out(0) = total.value();
}

}  // namespace fathom::lab::compensated_sum
