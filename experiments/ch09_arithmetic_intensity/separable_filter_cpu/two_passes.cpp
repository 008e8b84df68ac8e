// out = in filtered by a column, then by a row             n x n, fp32
//
// bytes   8 n^2, and 8 more for each pixel where the image between the passes leaves the caches. Lines are
//         fetched before they are written: 8 more
// flops   4 taps n^2
// limit   FMA peak; memory bandwidth where the images are in DRAM
// idea    the row's weight is a common factor of a column of the kernel: sum the columns first
#include "passes.h"

namespace fathom::lab::separable_filter_cpu {

void two_passes(const Filter& p, Context&) {
  Line column_storage, row_storage;
  const auto column = column_taps(p, column_storage), row = row_taps(p, row_storage);

  for (int64_t i = 0; i < p.out.extent(0); ++i)
    weighted_sum(&p.in(i, 0), column, &p.columns(i, 0), p.columns.extent(1));
  for (int64_t i = 0; i < p.out.extent(0); ++i)
    weighted_sum(&p.columns(i, 0), row, &p.out(i, 0), p.out.extent(1));
}

}  // namespace fathom::lab::separable_filter_cpu
