// out = sum of x(i)                       n elements, fp32
//
// bytes   4 n
// flops   4 n executed
// limit   bandwidth of the level that holds the array
// idea    Kahan's sum: what the last addition lost is taken from the next element before it is added. All
//         four additions wait for one another, from one element to the next.
#include "array.h"

namespace fathom::lab::compensated_sum {

void kahan(const Array& p, Context&) {
  const int64_t n = p.x.extent(0);
  const float* x  = p.x.data();
  float sum = 0, excess = 0;  // how much too large the sum is
  for (int64_t i = 0; i < n; ++i) {
    const float y = x[i] - excess;
    const float s = sum + y;
    excess        = (s - sum) - y;
    sum           = s;
  }
  p.out(0) = sum;
}

}  // namespace fathom::lab::compensated_sum
