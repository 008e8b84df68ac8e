// A column of points in one thread: it walks down the input, takes the five numbers of each row once, and
// adds them to the sums of all the points in whose neighbourhoods they lie.
#pragma once

#include "stencil.h"

namespace fathom::lab::shared_tile {

// `number(r, b)` gives the one r rows below and b columns to the right of the first point's corner.
template <int kRows, class Number>
__device__ inline void sums_of_column(float (&sum)[kRows], Number number) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) sum[r] = 0;
#pragma unroll
  for (int row = 0; row < kRows + kRim; ++row) {
    float five[kTaps];
#pragma unroll
    for (int b = 0; b < kTaps; ++b) five[b] = number(row, b);
#pragma unroll
    for (int a = 0; a < kTaps; ++a) {
      if (row < a || row - a >= kRows) continue;
#pragma unroll
      for (int b = 0; b < kTaps; ++b) sum[row - a] = fmaf(weight(a, b), five[b], sum[row - a]);
    }
  }
}

}  // namespace fathom::lab::shared_tile
