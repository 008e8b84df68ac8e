// out(i) = x(i) / norm                          n numbers, fp32
//
// bytes   8 n      4 read + 4 written
// flops   n        products, and one division
// limit   memory bandwidth at every size
// idea    divide once, then multiply (strength reduction). It rounds twice, so a compiler may not do it
// unasked.
#include "normalize.h"

namespace fathom::lab::basic_benchmark {

void reciprocal(const Normalize& p, Context&) {
  const float scale = 1 / p.norm(0);
  const float* x    = p.x.data();
  float* out        = p.out.data();
  for (int64_t i = 0; i < p.out.size(); ++i) out[i] = x[i] * scale;
}

}  // namespace fathom::lab::basic_benchmark
