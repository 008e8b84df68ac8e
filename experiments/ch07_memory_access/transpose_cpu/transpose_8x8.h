// Blocks of at most 8 x 8 floats, transposed; the whole ones in eight registers.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace fathom::lab::transpose_cpu {

// to[j * to_stride + i] = from[i * from_stride + j] for i, j < 8.
inline void transpose_8x8(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  // Rows i and i + 4 share a register from the load on, so that no shuffle has to cross its halves.
  const auto load = [&](int64_t i, int64_t j) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from + i * from_stride + j)),
                                _mm_loadu_ps(from + (i + 4) * from_stride + j), 1);
  };
  for (int64_t j = 0; j < 8; j += 4) {
    const __m256 r0 = load(0, j), r1 = load(1, j), r2 = load(2, j), r3 = load(3, j);
    const __m256 lo01 = _mm256_unpacklo_ps(r0, r1), hi01 = _mm256_unpackhi_ps(r0, r1);
    const __m256 lo23 = _mm256_unpacklo_ps(r2, r3), hi23 = _mm256_unpackhi_ps(r2, r3);
    _mm256_storeu_ps(to + (j + 0) * to_stride, _mm256_shuffle_ps(lo01, lo23, 0x44));
    _mm256_storeu_ps(to + (j + 1) * to_stride, _mm256_shuffle_ps(lo01, lo23, 0xEE));
    _mm256_storeu_ps(to + (j + 2) * to_stride, _mm256_shuffle_ps(hi01, hi23, 0x44));
    _mm256_storeu_ps(to + (j + 3) * to_stride, _mm256_shuffle_ps(hi01, hi23, 0xEE));
  }
}

// The same for a tile of rows x columns, in 8 x 8 blocks; what does not fill a block goes element by element.
inline void transpose_tile(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
                           int64_t to_stride) {
  const int64_t whole_rows = rows / 8 * 8, whole_columns = columns / 8 * 8;
  for (int64_t i = 0; i < whole_rows; i += 8)
    for (int64_t j = 0; j < whole_columns; j += 8)
      transpose_8x8(from + i * from_stride + j, from_stride, to + j * to_stride + i, to_stride);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j)
      to[j * to_stride + i] = from[i * from_stride + j];
}

}  // namespace fathom::lab::transpose_cpu
