// One training step of 8 layers        T tokens on each of 4 ranks; W = 1.05 MB of weights, fp32
//
// kept    W of weights, 1.25 W of gradients, 0.5 W of moments
// sent    1.5 W: a reduce-scatter of the gradients and an all-gather of the new weights are one all-reduce
// flops   6 T weights on each rank, and 3.5 weights of the update
// limit   FMA peak of a core
// idea    a rank keeps the moments of its shard alone, and updates it alone
#include "training.h"

namespace fathom::lab::fully_sharded_cpu {

Step zero1(const Training& p, Context& context) { return step_of(Stage::zero1, "tp1_dp4", p, context); }

}  // namespace fathom::lab::fully_sharded_cpu
