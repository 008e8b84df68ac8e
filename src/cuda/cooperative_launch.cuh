// Cooperative launches: all blocks of a grid run at once, and may wait for each other (CUDA Programming
// Guide, "Cooperative Groups", grid synchronization).
#pragma once

#include <cstddef>
#include <utility>

#include "cuda/check.h"
#include "cuda/multiprocessors.h"
#include "cuda/per_device.h"
#include "cuda/stream.h"

namespace fathom {

// Blocks of kThreads threads that the current GPU holds at once, with static shared memory alone.
template <auto* kKernel, int kThreads>
int resident_blocks() {
  static PerDevice<int> blocks;
  return blocks.get([] {
    int of_multiprocessor = 0;
    FATHOM_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_multiprocessor, kKernel, kThreads, 0));
    return of_multiprocessor * multiprocessors();
  });
}

// All blocks run at once, so they may wait for each other (grid.sync() of cooperative_groups). The launch
// fails where they do not fit: see resident_blocks().
template <class... Parameters, class... Arguments>
void launch_cooperative(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                        StreamRef stream, Arguments&&... arguments) {
  cudaLaunchAttribute attribute = {};
  attribute.id                  = cudaLaunchAttributeCooperative;
  attribute.val.cooperative     = 1;
  cudaLaunchConfig_t config     = {};
  config.gridDim                = grid;
  config.blockDim               = block;
  config.dynamicSmemBytes       = shared_bytes;
  config.stream                 = stream;
  config.attrs                  = &attribute;
  config.numAttrs               = 1;
  FATHOM_CUDA(cudaLaunchKernelEx(&config, kernel, Parameters(std::forward<Arguments>(arguments))...));
}

}  // namespace fathom
