// One training step of 8 layers        T tokens on each of 2 ranks; W = 1.05 MB of weights, fp32
//
// kept    as fsdp, and codes of two layers
// sent    0.36 W: a byte a number, and a scale a message
// flops   as fsdp; 1.44 W / 4 roundings to a code in the whole step, and twice as many lookups
// limit   FMA peak of a core; roundings take 1.2 ns each, as long as 4 bytes on a link of 3 GB/s
// idea    weights travel in E4M3, gradients in E5M2, sums are made in fp32
#include "training.h"

namespace fathom::lab::distributed_training {

Step fsdp_fp8(const Training& p, Context& context) {
  return step_of({.sharded = true, .wire = Wire::fp8}, p, context);
}

}  // namespace fathom::lab::distributed_training
