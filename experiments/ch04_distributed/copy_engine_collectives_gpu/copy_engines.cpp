// The copy engines push, and no multiprocessor takes part: cudaMemcpyPeerAsync, and signals by the stream.
#include <cuda_runtime.h>

#include "cuda/check.h"
#include "forward.h"

namespace fathom::lab::copy_engine_collectives_gpu {

Call copy_engines(const ShardedLayers& p, Context& context) {
  return beside_pushes(p, context,
                       [](const std::byte* from, int from_device, std::byte* to, int to_device, int64_t bytes,
                          StreamRef stream) {
                         FATHOM_CUDA(cudaMemcpyPeerAsync(to, to_device, from, from_device,
                                                         static_cast<size_t>(bytes), stream));
                       });
}

}  // namespace fathom::lab::copy_engine_collectives_gpu
