// level(v): the distance of v from vertex 0, by a breadth-first search
//
// bytes   36 a vertex: 8 edges read, a level written; and the levels of neighbours, at random, in L2
// flops   0
// limit   none: the question is who launches the next level
// idea    dynamic parallelism: the block that ends last knows the size of the next level, and launches it for
//         when its own grid has ended (cudaStreamTailLaunch)
#include "search.cuh"

namespace fathom::lab::dynamic_parallelism {
namespace {

__global__ void __launch_bounds__(kThreads) level_kernel(Search p, int level) {
  expand(p, level, p.size(level));
  __syncthreads();  // all threads of the block have added what they found
  if (threadIdx.x > 0) return;
  __threadfence();  // the block's vertices before its ticket
  if (atomicAdd(&p.finished(level), 1u) < gridDim.x - 1) return;
  __threadfence();  // the last ticket before the size
  const uint32_t size = *static_cast<volatile uint32_t*>(&p.size(level + 1));
  if (size == 0 || level + 1 == kMaxLevels) return;
  level_kernel<<<blocks_of(size), kThreads, 0, cudaStreamTailLaunch>>>(p, level + 1);
}

}  // namespace

void tail_launch(const Search& p, StreamRef stream) {
  if (p.vertices() == 0) return;
  launch_begin(p, stream);
  level_kernel<<<blocks_of(1), kThreads, 0, stream>>>(p, 0);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::dynamic_parallelism
