// out(j) = sum_i in(i, j)                       n x n, fp32
//
// bytes   4 n^2 read
// flops   n^2
// limit   memory bandwidth; this order fetches a line of 64 bytes for every 4 used; unless n lines stay
//         cached from one column to the next, it fetches each line 16 times
// idea    baseline: one column after the other, as the formula says; stride n
#include "column_sums.h"

namespace fathom::lab::stride {

void column_order(const ColumnSums& p, Context&) {
  const int64_t n = p.in.extent(0);
  const float* in = p.in.data();
  for (int64_t j = 0; j < n; ++j) {
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += in[i * n + j];
    p.out(j) = sum;
  }
}

}  // namespace fathom::lab::stride
