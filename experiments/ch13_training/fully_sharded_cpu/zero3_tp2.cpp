// One training step of 8 layers        T tokens on each of 4 ranks; W = 1.05 MB of weights, fp32
//
// kept    0.3125 W of weights, 0.3125 W of gradients, 0.5 W of moments
// sent    0.75 W, and 16 KiB T for activations: x, target, and a sum of 2 T rows for each layer and pass
// flops   as zero1
// limit   FMA peak of a core
// idea    two ranks share each layer's hidden units and tokens, and a shard is gathered by two ranks only
#include "training.h"

namespace fathom::lab::fully_sharded_cpu {

Step zero3_tp2(const Training& p, Context& context) { return step_of(Stage::zero3, "tp2_dp2", p, context); }

}  // namespace fathom::lab::fully_sharded_cpu
