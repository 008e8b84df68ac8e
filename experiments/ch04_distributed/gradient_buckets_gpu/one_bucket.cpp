// Nothing overlaps, but the sums of all layers are one: one latency instead of one a layer.
#include "backward.h"

namespace fathom::lab::gradient_buckets_gpu {

Call one_bucket(const Gradients& p, Context& context) {
  return [backward = std::make_shared<Backward>(p, *context.rank)](const Gradients& q, Context& c) {
    for (int64_t l = q.layers() - 1; l >= 0; --l) backward->layer(q, l, c.stream);
    backward->sum(q, 0, q.layers(), c.stream);
    backward->sum_nonces(q, c.stream);
  };
}

}  // namespace fathom::lab::gradient_buckets_gpu
