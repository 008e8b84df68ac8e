// out(i) = sum of 32 walks of length(i) steps from start(i)         n items, a warp for each
//
// bytes   12 n     hardly any traffic; the chains of shifts are the work
// flops   0
// limit   none: the question is how the work is distributed
// idea    a persistent grid; each warp takes its next item from an atomic counter, so that none is idle while
//         items are left. All atomic additions go to one address, which L2 serves one after another
#include "walk.cuh"

namespace fathom::lab::work_queue_gpu {

void atomic_queue(const Walks& p, StreamRef stream) { launch_queue<1>(p, stream); }

}  // namespace fathom::lab::work_queue_gpu
