// out = in(i) > t ascending in i, then in(i) <= t descending in i                       n elements, fp32
//
// bytes   8 n    4 n read + 4 n written
// flops   0; n comparisons
// limit   memory bandwidth of the level that holds both arrays
// idea    the element is written to both ends, and the result of the comparison, as a number, advances one of
//         them. The other write is overwritten later: while elements are left, there is room between the
//         ends.
#include "partition.h"

namespace fathom::lab::branch_predication {

void predicated(const Partition& p, Context&) {
  const int64_t n       = p.in.extent(0);
  const float threshold = p.threshold;
  const float* in       = p.in.data();
  float* front          = p.out.data();
  float* back           = p.out.data() + n;
  for (int64_t i = 0; i < n; ++i) {
    const float x       = in[i];
    const int64_t above = x > threshold;
    *front              = x;
    back[-1]            = x;
    front += above;
    back -= 1 - above;
  }
}

}  // namespace fathom::lab::branch_predication
