// out = sum of a(i) b(i)                       n elements, fp32
//
// bytes   8 n
// flops   2 n
// limit   bandwidth of the level that holds the arrays
// idea    one line that allows the compiler any order: it keeps a vector of sums. Only one, so each FMA still
//         waits for the one before.
#include "dot.h"

namespace fathom::lab::simd_dot {

void omp_simd(const Dot& p, Context&) {
  const int64_t n = p.a.extent(0);
  const float* a  = p.a.data();
  const float* b  = p.b.data();
  float sum       = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  p.out(0) = sum;
}

}  // namespace fathom::lab::simd_dot
