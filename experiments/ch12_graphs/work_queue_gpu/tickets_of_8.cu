// out(i) = sum of 32 walks of length(i) steps from start(i)         n items, a warp for each
//
// bytes   12 n     hardly any traffic; the chains of shifts are the work
// flops   0
// limit   none: the question is how the work is distributed
// idea    8 items for each atomic addition: an addition costs each of them a part, and warps end at most
//         8 items apart
#include "walk.cuh"

namespace fathom::lab::work_queue_gpu {

void tickets_of_8(const Walks& p, StreamRef stream) { launch_queue<8>(p, stream); }

}  // namespace fathom::lab::work_queue_gpu
