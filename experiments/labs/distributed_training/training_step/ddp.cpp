// One training step of 8 layers        T tokens on each of 2 ranks; W = 1.05 MB of weights, fp32
//
// kept    W of weights, W of gradients, 2 W of moments, activations of T tokens: 8.7 kB each
// sent    W by each rank: an all-reduce of the gradients
// flops   6 T weights on each rank, and 14 weights of the update
// limit   FMA peak of a core, then the link
// idea    baseline: one all-reduce of all gradients after the backward pass
#include "training.h"

namespace fathom::lab::distributed_training {

Step ddp(const Training& p, Context& context) { return step_of({}, p, context); }

}  // namespace fathom::lab::distributed_training
