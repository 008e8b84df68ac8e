// level(v): the distance of v from vertex 0, by a breadth-first search
//
// bytes   36 a vertex: 8 edges read, a level written; and the levels of neighbours, at random, in L2
// flops   0
// limit   none: the question is who launches the next level
// idea    dynamic parallelism, with the host's loop as a kernel of one thread: it launches a level
//         (cudaStreamFireAndForget) and itself again for when that has ended (cudaStreamTailLaunch). The
//         kernel of a level stays as it is, and a step takes two launches
#include "search.cuh"

namespace fathom::lab::dynamic_parallelism {
namespace {

__global__ void plan_kernel(Search p, int level) {
  const uint32_t size = p.size(level);
  if (size == 0 || level == kMaxLevels) return;
  expand_kernel<<<blocks_of(size), kThreads, 0, cudaStreamFireAndForget>>>(p, level);
  plan_kernel<<<1, 1, 0, cudaStreamTailLaunch>>>(p, level + 1);
}

}  // namespace

void planner(const Search& p, StreamRef stream) {
  if (p.vertices() == 0) return;
  launch_begin(p, stream);
  plan_kernel<<<1, 1, 0, stream>>>(p, 0);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::dynamic_parallelism
