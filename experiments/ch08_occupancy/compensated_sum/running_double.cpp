// out = sum of x(i)                       n elements, fp32
//
// bytes   4 n
// flops   n in fp64
// limit   bandwidth of the level that holds the array
// idea    the running sum in double precision: the same latency, and 29 more bits
#include "array.h"

namespace fathom::lab::compensated_sum {

void running_double(const Array& p, Context&) {
  const int64_t n = p.x.extent(0);
  const float* x  = p.x.data();
  double sum      = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]);
  p.out(0) = static_cast<float>(sum);
}

}  // namespace fathom::lab::compensated_sum
