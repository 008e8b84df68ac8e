// A row of floats written past the caches.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

namespace fathom::lab::transpose_cpu {

// to[0, n) = from[0, n), past the caches where `to` is aligned: rows are not, unless n is a multiple of 8.
inline void stream_row(const float* from, int64_t n, float* to) {
  const int64_t misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) / 4 % 8);
  const int64_t head       = std::min(n, (8 - misaligned) % 8);
  int64_t i                = 0;
  for (; i < head; ++i) to[i] = from[i];
  for (; i + 8 <= n; i += 8) _mm256_stream_ps(to + i, _mm256_loadu_ps(from + i));
  for (; i < n; ++i) to[i] = from[i];
}

}  // namespace fathom::lab::transpose_cpu
