// Horner's rule for the points from `first` on that do not fill a group of vectors: one register, or one
// point, at a time.
#pragma once

#include <immintrin.h>

#include "polynomial.h"

namespace fathom::lab::accumulators {

inline void horner_rest(const Polynomial& p, int64_t first) {
  const int64_t n = p.x.extent(0);
  const float* x  = p.x.data();
  const float* c  = p.c.data();
  float* out      = p.out.data();
  int64_t i       = first;
  for (; i + kLanes <= n; i += kLanes) {
    const __m256 xs = _mm256_loadu_ps(x + i);
    __m256 r        = _mm256_set1_ps(c[kDegree]);
    for (int64_t k = kDegree - 1; k >= 0; --k) r = _mm256_fmadd_ps(r, xs, _mm256_set1_ps(c[k]));
    _mm256_storeu_ps(out + i, r);
  }
  for (; i < n; ++i) {
    float r = c[kDegree];
    for (int64_t k = kDegree - 1; k >= 0; --k) r = r * x[i] + c[k];
    out[i] = r;
  }
}

}  // namespace fathom::lab::accumulators
