// The same, and NCCL may use four multiprocessors: the products keep the others, and the gathers are slower.
#include "forward.h"

namespace fathom::lab::copy_engine_collectives_gpu {

Call nccl_4_ctas(const ShardedLayers& p, Context& context) { return beside_nccl(p, context, 4); }

}  // namespace fathom::lab::copy_engine_collectives_gpu
