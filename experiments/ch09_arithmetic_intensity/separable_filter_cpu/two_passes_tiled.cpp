// out = in filtered by a column, then by a row             n x n, fp32
//
// bytes   8 n^2, and 4 more for each pixel of out, whose line is fetched before it is written
// flops   4 taps n^2
// limit   FMA peak; the loads of the columns come first where taps rows do not fit into L1
// idea    the second pass follows the first row by row: of the image between them only one row exists at a
// time
#include "passes.h"

namespace fathom::lab::separable_filter_cpu {

void two_passes_tiled(const Filter& p, Context&) {
  Line column_storage, row_storage;
  const auto column = column_taps(p, column_storage), row = row_taps(p, row_storage);

  float* between = p.columns.data();
  for (int64_t i = 0; i < p.out.extent(0); ++i) {
    weighted_sum(&p.in(i, 0), column, between, p.in.extent(1));
    weighted_sum(between, row, &p.out(i, 0), p.out.extent(1));
  }
}

}  // namespace fathom::lab::separable_filter_cpu
