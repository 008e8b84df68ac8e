// y = x + down(swiglu(up(norm(x))))       T x 256, fp32, weights in bf16
//
// flops   344 k a token
// limit   the FMA units; for a few tokens the weights' bytes
// idea    the schedules of an earlier search, read from its file; without one it searches
#include "program.h"

namespace fathom::lab::autotune {

Launch<Layer> cached(const Layer& layer, Context& context) {
  return launch_of(layer, context, autotuned_schedules(tune_cache(), kExhaustive));
}

}  // namespace fathom::lab::autotune
