// level(v): the distance of v from vertex 0, by a breadth-first search
//
// bytes   36 a vertex: 8 edges read, a level written; and the levels of neighbours, at random, in L2
// flops   0
// limit   none: the question is who launches the next level
// idea    none yet: the host reads how many vertices the next level has, and launches as many blocks as it
// needs
#include "search.cuh"

namespace fathom::lab::dynamic_parallelism {

void host_decides(const Search& p, StreamRef stream) {
  if (p.vertices() == 0) return;
  launch_begin(p, stream);
  uint32_t size = 1;
  for (int level = 0; level < kMaxLevels && size > 0; ++level) {
    launch_level(p, level, blocks_of(size), stream);
    FATHOM_CUDA(cudaMemcpyAsync(p.on_host.data(), &p.size(level + 1), sizeof(uint32_t),
                                cudaMemcpyDeviceToHost, stream));
    FATHOM_CUDA(cudaStreamSynchronize(stream));  // the size is needed to go on: this is the lesson
    size = *static_cast<const volatile uint32_t*>(p.on_host.data());
  }
}

}  // namespace fathom::lab::dynamic_parallelism
