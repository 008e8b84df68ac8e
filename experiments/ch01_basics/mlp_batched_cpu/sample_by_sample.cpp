// out(s) = relu(x(s) W1) W2                     S samples, 256 -> 1024 -> 256, fp32
//
// bytes   2 MiB of weights for each sample: 2 flops for each weight that is loaded
// flops   S * 1,048,576
// limit   FMA peak; not reached: the weights do not fit in L2, and L3 delivers them more slowly than a core
// multiplies idea    baseline: the model is a function of a sample, and a loop calls it
#include "mlp.h"

namespace fathom::lab::mlp_batched_cpu {

void sample_by_sample(const Mlp& p, Context&) {
  for (int64_t s = 0; s < p.x.extent(0); ++s) forward(p, s, s + 1);
}

}  // namespace fathom::lab::mlp_batched_cpu
