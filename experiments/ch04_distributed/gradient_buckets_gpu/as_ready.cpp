// A layer's sum begins when its gradient is there, beside the products of the layers before it.
#include "backward.h"

namespace fathom::lab::gradient_buckets_gpu {

Call as_ready(const Gradients& p, Context& context) { return overlapped(p, context, 0); }

}  // namespace fathom::lab::gradient_buckets_gpu
