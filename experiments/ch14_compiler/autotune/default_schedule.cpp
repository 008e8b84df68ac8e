// y = x + down(swiglu(up(norm(x))))       T x 256, fp32, weights in bf16
//
// flops   344 k a token
// limit   the FMA units; for a few tokens the weights' bytes
// idea    baseline: blocks of 4 KiB, chunks of 256 KiB, all threads, for every launch
#include "program.h"

namespace fathom::lab::autotune {

Launch<Layer> default_schedule(const Layer& layer, Context& context) { return launch_of(layer, context, {}); }

}  // namespace fathom::lab::autotune
