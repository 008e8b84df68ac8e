// out(s) = relu(x(s) W1) W2                     S samples, 256 -> 1024 -> 256, fp32
//
// bytes   2 MiB of weights in all; six samples share a load of a weight, and all of them a panel of 16
// columns in a cache flops   S * 1,048,576 limit   FMA peak. Zen 4 with AVX2: 64 samples are 67 MFLOP, 0.73
// ms at 92 GFLOP/s idea    the same function, called once for all samples: vectors times a matrix become a
// product of matrices
#include "mlp.h"

namespace fathom::lab::mlp_batched_cpu {

void batched(const Mlp& p, Context&) { forward(p, 0, p.x.extent(0)); }

}  // namespace fathom::lab::mlp_batched_cpu
