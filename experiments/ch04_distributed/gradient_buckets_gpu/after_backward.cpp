// Nothing overlaps: the backward pass, then a sum for each layer.
#include "backward.h"

namespace fathom::lab::gradient_buckets_gpu {

Call after_backward(const Gradients& p, Context& context) {
  return [backward = std::make_shared<Backward>(p, *context.rank)](const Gradients& q, Context& c) {
    for (int64_t l = q.layers() - 1; l >= 0; --l) backward->layer(q, l, c.stream);
    for (int64_t l = q.layers() - 1; l >= 0; --l) backward->sum(q, l, l + 1, c.stream);
    backward->sum_nonces(q, c.stream);
  };
}

}  // namespace fathom::lab::gradient_buckets_gpu
