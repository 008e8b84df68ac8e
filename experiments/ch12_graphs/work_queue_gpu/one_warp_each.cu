// out(i) = sum of 32 walks of length(i) steps from start(i)         n items, a warp for each
//
// bytes   12 n     hardly any traffic; the chains of shifts are the work
// flops   0
// limit   none: the question is how the work is distributed
// idea    as many warps as items: the hardware's block scheduler is the queue. It hands out blocks of 8
//         items, and a block keeps its place until its longest item is done
#include "walk.cuh"

namespace fathom::lab::work_queue_gpu {
namespace {

__global__ void __launch_bounds__(kThreads) one_warp_each_kernel(Walks p) {
  const int64_t i = blockIdx.x * int64_t{kWarps} + threadIdx.x / 32;
  if (i < p.start.size()) walk_item(p, i);
}

}  // namespace

void one_warp_each(const Walks& p, StreamRef stream) {
  if (p.start.size() == 0) return;
  one_warp_each_kernel<<<blocks_for(p.start.size(), kWarps), kThreads, 0, stream>>>(p);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::work_queue_gpu
