// The sum of an array in 64 running sums: eight vectors of eight, merged by a tree.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace fathom::lab::compensated_sum {

constexpr int64_t kLanes = 8;  // fp32 in a 32-byte register

inline float sum_of_lanes(__m256 v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two  = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

inline float vector_sum(const float* x, int64_t n) {
  constexpr int64_t kVectors = 8;
  __m256 s[kVectors];
  for (__m256& vector : s) vector = _mm256_setzero_ps();
  int64_t i = 0;
  for (; i + kVectors * kLanes <= n; i += kVectors * kLanes)
    for (int64_t q = 0; q < kVectors; ++q) s[q] = _mm256_add_ps(s[q], _mm256_loadu_ps(x + i + q * kLanes));
  for (int64_t step = kVectors / 2; step > 0; step /= 2)
    for (int64_t q = 0; q < step; ++q) s[q] = _mm256_add_ps(s[q], s[q + step]);
  float sum = sum_of_lanes(s[0]);
  for (; i < n; ++i) sum += x[i];
  return sum;
}

}  // namespace fathom::lab::compensated_sum
