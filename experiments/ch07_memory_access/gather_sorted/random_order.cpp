// out = sum of table(index(i))                       n indices, n words of 8 bytes
//
// bytes   12 n: indices 4 n, table 8 n. In this order a line of 64 bytes moves for each 8 it gives: 68 n.
// flops   0
// limit   memory bandwidth
// idea    baseline: the loop. The loads do not depend on each other, so the core keeps as many misses under
//         way as it has buffers for, but not one more.
#include "gather.h"

namespace fathom::lab::gather_sorted {

void random_order(const Gather& p, Context&) {
  const int64_t n      = p.index.extent(0);
  const int64_t* table = p.table.data();
  const uint32_t* rows = p.index.data();
  int64_t sum          = 0;
  for (int64_t i = 0; i < n; ++i) sum += table[rows[i]];
  p.out(0) = sum;
}

}  // namespace fathom::lab::gather_sorted
