// One training step of 8 layers        T tokens on each of 2 ranks; W = 1.05 MB of weights, fp32
//
// kept    as ddp
// sent    W
// flops   as ddp
// limit   FMA peak of a core; of the link, what the backward pass is too short for, and the last bucket
// idea    two layers' gradients are summed by another thread while the layers before are computed
#include "training.h"

namespace fathom::lab::distributed_training {

Step ddp_buckets(const Training& p, Context& context) {
  return step_of({.overlapped = true, .bucket_bytes = 256 << 10}, p, context);
}

}  // namespace fathom::lab::distributed_training
