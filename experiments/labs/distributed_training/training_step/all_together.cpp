// One training step of 8 layers        T tokens on each of 2 ranks; W = 1.05 MB of weights, fp32
//
// kept    0.75 W of weights, 1.5 W of gradients, W of moments, codes, activations of T / 2 tokens
// sent    0.58 W: 29 gathers of a layer and 8 scatters, a byte a number
// flops   as fsdp, with 2.4 W / 4 roundings to a code
// limit   as fsdp_prefetch
// idea    shards, gathered ahead, in fp8, with two micro-batches that share one exchange of gradients
#include "training.h"

namespace fathom::lab::distributed_training {

Step all_together(const Training& p, Context& context) {
  return step_of({.sharded = true, .overlapped = true, .micro_batches = 2, .wire = Wire::fp8}, p, context);
}

}  // namespace fathom::lab::distributed_training
