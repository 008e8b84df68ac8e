// One training step of 8 layers        T tokens on each of 2 ranks; W = 1.05 MB of weights, fp32
//
// kept    0.625 W of weights, 0.625 W of gradients, W of moments, activations of T tokens
// sent    1.44 W: 8 layers gathered forward, 7 backward (the last is still there), gradients scattered
// flops   6 T weights on each rank, and 7 weights of the update
// limit   FMA peak of a core, then the link
// idea    half of everything on each rank; a layer's weights come when they are needed
#include "training.h"

namespace fathom::lab::distributed_training {

Step fsdp(const Training& p, Context& context) { return step_of({.sharded = true}, p, context); }

}  // namespace fathom::lab::distributed_training
