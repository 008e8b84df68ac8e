// out = sum of a(i) b(i)                       n elements, fp32
//
// bytes   8 n
// flops   2 n
// limit   bandwidth of the level that holds the arrays: two loads an FMA, so loads even from L1
// idea    baseline: the definition, and the compiler keeps its order of additions
#include "dot.h"

namespace fathom::lab::simd_dot {

void scalar(const Dot& p, Context&) {
  const int64_t n = p.a.extent(0);
  const float* a  = p.a.data();
  const float* b  = p.b.data();
  float sum       = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  p.out(0) = sum;
}

}  // namespace fathom::lab::simd_dot
