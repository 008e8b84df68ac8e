// Pieces of 4 MiB: NCCL reaches about half of its bandwidth with them, and the last one is short.
#include "backward.h"

namespace fathom::lab::gradient_buckets_gpu {

Call buckets_4mib(const Gradients& p, Context& context) { return overlapped(p, context, int64_t{4} << 20); }

}  // namespace fathom::lab::gradient_buckets_gpu
