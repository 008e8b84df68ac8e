// One training step of 8 layers        T tokens on each of 2 ranks; W = 1.05 MB of weights, fp32
//
// kept    as fsdp, and one more layer of weights and of gradients: 0.25 W
// sent    1.44 W
// flops   as fsdp
// limit   FMA peak of a core; of the link, the first gather, the last scatter, what takes longer than compute
// idea    the next layer is gathered, and the last one's gradients scattered, while this one computes
#include "training.h"

namespace fathom::lab::distributed_training {

Step fsdp_prefetch(const Training& p, Context& context) {
  return step_of({.sharded = true, .overlapped = true}, p, context);
}

}  // namespace fathom::lab::distributed_training
