// One training step of 8 layers        T tokens on each of 4 ranks; W = 1.05 MB of weights, fp32
//
// kept    W of weights, W of gradients, 2 W of moments on every rank
// sent    1.5 W by each rank: an all-reduce of the gradients
// flops   6 T weights on each rank, and 14 weights of the update
// limit   FMA peak of a core
// idea    baseline: every rank has everything, and all make the same update
#include "training.h"

namespace fathom::lab::fully_sharded_cpu {

Step ddp(const Training& p, Context& context) { return step_of(Stage::ddp, "tp1_dp4", p, context); }

}  // namespace fathom::lab::fully_sharded_cpu
