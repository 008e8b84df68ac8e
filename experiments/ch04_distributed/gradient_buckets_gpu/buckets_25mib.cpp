// Pieces of 25 MiB, the default of PyTorch's DistributedDataParallel.
#include "backward.h"

namespace fathom::lab::gradient_buckets_gpu {

Call buckets_25mib(const Gradients& p, Context& context) { return overlapped(p, context, int64_t{25} << 20); }

}  // namespace fathom::lab::gradient_buckets_gpu
