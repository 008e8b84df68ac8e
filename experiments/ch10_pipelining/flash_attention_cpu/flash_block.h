// Attention of a block of queries to all keys, tile by tile: Dao, FlashAttention-2, arXiv:2307.08691, 2023,
// algorithm 1.
#pragma once

#include <cmath>

#include "steps.h"

namespace fathom::lab::flash_attention_cpu {

inline void flash_block(const Attention& p, int64_t first, int64_t rows) {
  const int64_t tokens = p.k.extent(0);
  float* out           = p.out.data() + first * kHeadDim;
  alignas(64) float tile[kRows * kColumns];
  float max[kRows], sum[kRows];
  std::fill_n(max, rows, kMinusInfinity);
  std::fill_n(sum, rows, 0.0f);
  std::fill_n(out, rows * kHeadDim, 0.0f);

  for (int64_t j = 0; j < tokens; j += kColumns) {
    const int64_t columns = std::min(kColumns, tokens - j);
    scores(p, first, rows, j, columns, tile, kColumns);
    for (int64_t r = 0; r < rows; ++r) {
      float* row          = tile + r * kColumns;
      const float new_max = std::max(max[r], maximum(row, columns));
      if (new_max > max[r]) {
        // Older terms are relative to the smaller maximum. In the first tile there are none, and the factor
        // is 0.
        const float shrink = std::exp(kScale * (max[r] - new_max));
        sum[r] *= shrink;
        scale_row(out + r * kHeadDim, shrink);
        max[r] = new_max;
      }
      sum[r] += exponentials(row, columns, max[r]);
    }
    product(rows, kHeadDim, columns, tile, kColumns, rows_of(p.v.data() + j * kHeadDim, kHeadDim), out,
            kHeadDim, true);
  }
  for (int64_t r = 0; r < rows; ++r) scale_row(out + r * kHeadDim, 1 / sum[r]);
}

}  // namespace fathom::lab::flash_attention_cpu
