// The gathers run ahead on a second stream, by kernels of as many thread blocks as NCCL chooses.
#include "forward.h"

namespace fathom::lab::copy_engine_collectives_gpu {

Call nccl_beside(const ShardedLayers& p, Context& context) { return beside_nccl(p, context, -1); }

}  // namespace fathom::lab::copy_engine_collectives_gpu
