// How large a grid is when every multiprocessor gets the same number of blocks and all run at once.
#pragma once

#include "core/cuda.h"

namespace fathom::lab {

inline int multiprocessors() {
  int device = 0, count = 0;
  FATHOM_CUDA(cudaGetDevice(&device));
  FATHOM_CUDA(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

// As many blocks as the whole GPU holds at once, with `shared` bytes of dynamic shared memory each.
template <class Kernel>
int resident_blocks(Kernel kernel, int threads, int shared = 0) {
  if (shared > 0) {
    // Beyond 48 KiB a kernel has to ask, and the L1 has to make room for as many blocks as fit.
    FATHOM_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    FATHOM_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                     cudaSharedmemCarveoutMaxShared));
  }
  int blocks = 0;
  FATHOM_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared));
  return blocks * multiprocessors();
}

}  // namespace fathom::lab
