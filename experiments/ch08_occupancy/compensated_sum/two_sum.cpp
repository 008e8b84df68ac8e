// out = sum of x(i)                       n elements, fp32
//
// bytes   4 n
// flops   7 n executed
// limit   bandwidth of the level that holds the array
// idea    what each addition lost goes into a second sum. More additions than Kahan's, but from one element
//         to the next only one of them waits in either sum; the others fill the units meanwhile.
#include "array.h"
#include "compensated.h"

namespace fathom::lab::compensated_sum {

void two_sum(const Array& p, Context&) {
  const int64_t n = p.x.extent(0);
  const float* x  = p.x.data();
  Compensated total;
  for (int64_t i = 0; i < n; ++i) total.add(x[i]);
  p.out(0) = total.value();
}

}  // namespace fathom::lab::compensated_sum
