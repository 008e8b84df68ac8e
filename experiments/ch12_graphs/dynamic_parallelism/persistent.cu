// level(v): the distance of v from vertex 0, by a breadth-first search
//
// bytes   36 a vertex: 8 edges read, a level written; and the levels of neighbours, at random, in L2
// flops   0
// limit   none: the question is who launches the next level
// idea    one cooperative kernel does all levels: its blocks stay resident and wait for each other
//         after each. Nothing is launched, but a small level occupies, and waits for, the whole GPU
#include <cooperative_groups.h>

#include "cuda/cooperative_launch.cuh"
#include "search.cuh"

namespace fathom::lab::dynamic_parallelism {
namespace {

__global__ void __launch_bounds__(kThreads) search_kernel(Search p) {
  const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
  for (int level = 0; level < kMaxLevels; ++level) {
    // Complete since the last barrier, and so the same for all blocks: they leave together.
    const uint32_t size = *static_cast<volatile uint32_t*>(&p.size(level));
    if (size == 0) return;
    expand(p, level, size);
    grid.sync();  // the next level is complete, and its vertices are in memory
  }
}

}  // namespace

void persistent(const Search& p, StreamRef stream) {
  if (p.vertices() == 0) return;
  const auto resident = static_cast<unsigned>(resident_blocks<search_kernel, kThreads>());
  const unsigned most = blocks_of(static_cast<uint32_t>(p.vertices()));
  launch_begin(p, stream);
  launch_cooperative(search_kernel, dim3(most < resident ? most : resident), dim3(kThreads), 0, stream, p);
}

}  // namespace fathom::lab::dynamic_parallelism
