// One training step of 8 layers        T tokens on each of 4 ranks; W = 1.05 MB of weights, fp32
//
// kept    W of weights, 0.375 W of gradients, 0.5 W of moments
// sent    1.5 W
// flops   as zero1
// limit   FMA peak of a core
// idea    a layer's gradients leave as soon as they are there; one layer's buffer serves all
#include "training.h"

namespace fathom::lab::fully_sharded_cpu {

Step zero2(const Training& p, Context& context) { return step_of(Stage::zero2, "tp1_dp4", p, context); }

}  // namespace fathom::lab::fully_sharded_cpu
