// out = sum of table(index(i))                       n indices, n words of 8 bytes
//
// bytes   12 n: indices 4 n, table 8 n
// flops   0
// limit   memory bandwidth
// idea    the loop is the same; the indices were stored in ascending order. Uses of a line follow each other,
//         and the lines come in a sequence that the prefetcher knows.
#include "gather.h"

namespace fathom::lab::gather_sorted {

void sorted(const Gather& p, Context&) {
  const int64_t n      = p.sorted.extent(0);
  const int64_t* table = p.table.data();
  const uint32_t* rows = p.sorted.data();
  int64_t sum          = 0;
  for (int64_t i = 0; i < n; ++i) sum += table[rows[i]];
  p.out(0) = sum;
}

}  // namespace fathom::lab::gather_sorted
