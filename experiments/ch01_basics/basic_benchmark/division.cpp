// out(i) = x(i) / norm                          n numbers, fp32
//
// bytes   8 n      4 read + 4 written
// flops   n        divisions: the divider takes 8 of them in about 5 cycles, where the multiplier takes 16 in
// one limit   memory bandwidth; below L3 the divider comes first idea    baseline: the formula as it stands
// in the text
#include "normalize.h"

namespace fathom::lab::basic_benchmark {

void division(const Normalize& p, Context&) {
  const float norm = p.norm(0);
  const float* x   = p.x.data();
  float* out       = p.out.data();
  for (int64_t i = 0; i < p.out.size(); ++i) out[i] = x[i] / norm;
}

}  // namespace fathom::lab::basic_benchmark
