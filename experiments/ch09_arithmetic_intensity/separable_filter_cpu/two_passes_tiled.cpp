// out = in filtered by a column, then by a row             n x n, fp32
//
// bytes   8 n^2
// flops   4 taps n^2, and the rim of each strip a second time
// limit   FMA peak
// idea    strips of the image so narrow that the taps rows of a pixel's column stay in L1; of the image
// between
//         the passes only a row of the strip exists at a time
#include <algorithm>

#include "passes.h"

namespace fathom::lab::separable_filter_cpu {

void two_passes_tiled(const Filter& p, Context&) {
  constexpr int64_t kStrip = 512;  // pixels: 15 rows of them are 30 KiB
  Line column_storage, row_storage;
  const auto column = column_taps(p, column_storage), row = row_taps(p, row_storage);

  const int64_t n = p.out.extent(1);
  for (int64_t j = 0; j < n; j += kStrip) {
    const int64_t width = std::min(kStrip, n - j);
    float* between      = p.columns.data();
    for (int64_t i = 0; i < p.out.extent(0); ++i) {
      weighted_sum(&p.in(i, j), column, between, width + p.taps() - 1);
      weighted_sum(between, row, &p.out(i, j), width);
    }
  }
}

}  // namespace fathom::lab::separable_filter_cpu
