// out(j) = sum_i in(i, j)                       n x n, fp32
//
// bytes   4 n^2 read; the n sums stay in L1
// flops   n^2
// limit   memory bandwidth
// idea    the two loops are exchanged: rows are walked at stride 1, each line is used whole and once, the
//         prefetchers see a stream, and n independent sums make vectors
#include <algorithm>

#include "column_sums.h"

namespace fathom::lab::stride {

void row_order(const ColumnSums& p, Context&) {
  const int64_t n       = p.in.extent(0);
  const float* in       = p.in.data();
  float* __restrict out = p.out.data();
  std::fill(out, out + n, 0.0f);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) out[j] += in[i * n + j];
}

}  // namespace fathom::lab::stride
