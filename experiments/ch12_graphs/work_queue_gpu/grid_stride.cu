// out(i) = sum of 32 walks of length(i) steps from start(i)         n items, a warp for each
//
// bytes   12 n     hardly any traffic; the chains of shifts are the work
// flops   0
// limit   none: the question is how the work is distributed
// idea    none yet: a persistent grid, in which warp w of W takes items w, w + W, ... Each gets the same
//         number of items, but not the same work
#include "walk.cuh"

namespace fathom::lab::work_queue_gpu {
namespace {

__global__ void __launch_bounds__(kThreads) grid_stride_kernel(Walks p) {
  const int64_t first = blockIdx.x * int64_t{kWarps} + threadIdx.x / 32;
  for (int64_t i = first; i < p.start.size(); i += int64_t{gridDim.x} * kWarps) walk_item(p, i);
}

}  // namespace

void grid_stride(const Walks& p, StreamRef stream) {
  if (p.start.size() == 0) return;
  grid_stride_kernel<<<resident_blocks<grid_stride_kernel>(p.start.size()), kThreads, 0, stream>>>(p);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::work_queue_gpu
