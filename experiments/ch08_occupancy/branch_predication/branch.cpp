// out = in(i) > t ascending in i, then in(i) <= t descending in i                       n elements, fp32
//
// bytes   8 n    4 n read + 4 n written
// flops   0; n comparisons
// limit   memory bandwidth of the level that holds both arrays
// idea    baseline: a plain branch. The compiler may not remove it: the two sides store to different places.
#include "partition.h"

namespace fathom::lab::branch_predication {

void branch(const Partition& p, Context&) {
  const int64_t n       = p.in.extent(0);
  const float threshold = p.threshold;
  const float* in       = p.in.data();
  float* front          = p.out.data();
  float* back           = p.out.data() + n;
  for (int64_t i = 0; i < n; ++i) {
    if (in[i] > threshold)
      *front++ = in[i];
    else
      *--back = in[i];
  }
}

}  // namespace fathom::lab::branch_predication
