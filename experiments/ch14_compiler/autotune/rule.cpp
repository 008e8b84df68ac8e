// y = x + down(swiglu(up(norm(x))))       T x 256, fp32, weights in bf16
//
// flops   344 k a token
// limit   the FMA units; for a few tokens the weights' bytes
// idea    schedules by arithmetic: what fits half of L1 and of L2; threads where the work outweighs a fork
#include "program.h"

namespace fathom::lab::autotune {

Launch<Layer> rule(const Layer& layer, Context& context) {
  return launch_of(layer, context, compile::schedules_by_rule);
}

}  // namespace fathom::lab::autotune
