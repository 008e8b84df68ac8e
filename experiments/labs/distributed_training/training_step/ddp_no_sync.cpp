// One training step of 8 layers        T tokens on each of 2 ranks; W = 1.05 MB of weights, fp32
//
// kept    as ddp, with activations of T / 4 tokens
// sent    W: one all-reduce, after the last of four passes (DDP's no_sync in the others)
// flops   as ddp
// limit   as ddp
// idea    four micro-batches add to the same gradients
#include "training.h"

namespace fathom::lab::distributed_training {

Step ddp_no_sync(const Training& p, Context& context) { return step_of({.micro_batches = 4}, p, context); }

}  // namespace fathom::lab::distributed_training
