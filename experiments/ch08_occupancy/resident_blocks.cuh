// How large a grid is when every multiprocessor gets the same number of blocks and all run at once.
#pragma once

#include "cuda/check.h"
#include "cuda/multiprocessors.h"
#include "cuda/per_device.h"

namespace fathom::lab {

// As many blocks as the whole GPU holds at once, with `shared` bytes of dynamic shared memory each.
template <auto* kKernel>
int resident_blocks(int threads, int shared = 0) {
  static PerDevice<int> blocks;
  return blocks.get([&] {
    if (shared > 0) {
      // Beyond 48 KiB a kernel has to ask, and the L1 has to make room for as many blocks as fit.
      FATHOM_CUDA(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
      FATHOM_CUDA(cudaFuncSetAttribute(kKernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                       cudaSharedmemCarveoutMaxShared));
    }
    int each = 0;
    FATHOM_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kKernel, threads, shared));
    return each * multiprocessors();
  });
}

}  // namespace fathom::lab
