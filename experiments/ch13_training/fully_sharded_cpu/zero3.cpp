// One training step of 8 layers        T tokens on each of 4 ranks; W = 1.05 MB of weights, fp32
//
// kept    0.375 W of weights, 0.375 W of gradients, 0.5 W of moments
// sent    2.25 W: a layer's weights are gathered for its forward pass and for its backward pass
// flops   as zero1
// limit   FMA peak of a core
// idea    a rank has its shard of each layer, and whole weights of the layer in work alone (FSDP)
#include "training.h"

namespace fathom::lab::fully_sharded_cpu {

Step zero3(const Training& p, Context& context) { return step_of(Stage::zero3, "tp1_dp4", p, context); }

}  // namespace fathom::lab::fully_sharded_cpu
