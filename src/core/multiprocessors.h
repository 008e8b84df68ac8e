// How many blocks it takes to put one on each multiprocessor: for launchers whose blocks walk over their
// work.
#pragma once

#include "core/cuda.h"

namespace fathom {

// Of the GPU that this process uses; asked once.
inline int multiprocessors() {
  static const int count = [] {
    int device = 0, multiprocessors = 0;
    FATHOM_CUDA(cudaGetDevice(&device));
    FATHOM_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    return multiprocessors;
  }();
  return count;
}

}  // namespace fathom
