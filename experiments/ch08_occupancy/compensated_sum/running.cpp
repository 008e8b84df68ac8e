// out = sum of x(i)                       n elements, fp32
//
// bytes   4 n
// flops   n
// limit   bandwidth of the level that holds the array
// idea    baseline: one running sum in the order of the loop, an addition's latency for each element
#include "array.h"

namespace fathom::lab::compensated_sum {

void running(const Array& p, Context&) {
  const int64_t n = p.x.extent(0);
  const float* x  = p.x.data();
  float sum       = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  p.out(0) = sum;
}

}  // namespace fathom::lab::compensated_sum
