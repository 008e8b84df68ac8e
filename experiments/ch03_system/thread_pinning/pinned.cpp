// `steps` steps of diffusion over n cells, one barrier a step                 fp32, all threads
//
// bytes   8 n: the rod is read and written once; between steps it stays in the caches of its cores
// flops   4 n steps
// limit   none physical: a step of a rod that fits in L2 takes as long as its barrier
// idea    each thread is bound to one CPU for life: a piece of the rod stays in its core's cache
#include "core/thread_pool.h"
#include "thread_pinning.h"

namespace fathom::lab::thread_pinning {

void pinned(const Diffusion& p, Context& context) { diffuse(p, context.pool); }

}  // namespace fathom::lab::thread_pinning
