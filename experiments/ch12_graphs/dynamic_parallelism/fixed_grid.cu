// level(v): the distance of v from vertex 0, by a breadth-first search
//
// bytes   36 a vertex: 8 edges read, a level written; and the levels of neighbours, at random, in L2
// flops   0
// limit   none: the question is who launches the next level
// idea    nobody decides: the host launches all levels that there may be, each with as many blocks as the GPU
//         holds. They read the size of their level; small levels, and those that turn out empty, waste a
//         launch
#include "cuda/cooperative_launch.cuh"
#include "search.cuh"

namespace fathom::lab::dynamic_parallelism {

void fixed_grid(const Search& p, StreamRef stream) {
  if (p.vertices() == 0) return;
  const auto resident = static_cast<unsigned>(resident_blocks<expand_kernel, kThreads>());
  const unsigned most = blocks_of(static_cast<uint32_t>(p.vertices()));
  launch_begin(p, stream);
  for (int level = 0; level < kMaxLevels; ++level)
    launch_level(p, level, most < resident ? most : resident, stream);
}

}  // namespace fathom::lab::dynamic_parallelism
