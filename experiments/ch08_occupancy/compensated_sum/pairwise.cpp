// out = sum of x(i)                       n elements, fp32
//
// bytes   4 n
// flops   n
// limit   bandwidth of the level that holds the array
// idea    a tree: the sum of an array is the sum of its halves. Blocks of 4096 are its leaves, each in 64
//         running sums, so that an element passes through 64 + 6 + log2(n / 4096) additions.
#include <immintrin.h>

#include "array.h"

namespace fathom::lab::compensated_sum {
namespace {

constexpr int64_t kBlock = 4096;

float sum_of_lanes(__m256 v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two  = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

float leaf(const float* x, int64_t n) {
  constexpr int64_t kChains = 8;
  __m256 sum[kChains];
  for (__m256& vector : sum) vector = _mm256_setzero_ps();
  int64_t i = 0;
  for (; i + kChains * kLanes <= n; i += kChains * kLanes)
    for (int64_t q = 0; q < kChains; ++q) sum[q] = _mm256_add_ps(sum[q], _mm256_loadu_ps(x + i + q * kLanes));
  for (int64_t step = kChains / 2; step > 0; step /= 2)
    for (int64_t q = 0; q < step; ++q) sum[q] = _mm256_add_ps(sum[q], sum[q + step]);
  float all = sum_of_lanes(sum[0]);
  for (; i < n; ++i) all += x[i];
  return all;
}

float tree(const float* x, int64_t n) {
  if (n <= kBlock) return leaf(x, n);
  const int64_t half = (n / 2 + kBlock - 1) / kBlock * kBlock;  // whole blocks
  return tree(x, half) + tree(x + half, n - half);
}

}  // namespace

void pairwise(const Array& p, Context&) { p.out(0) = tree(p.x.data(), p.x.extent(0)); }

}  // namespace fathom::lab::compensated_sum
