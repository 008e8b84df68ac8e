// The number of multiprocessors (SMs), for launchers that choose their grid by it.
#pragma once

#include "cuda/check.h"
#include "cuda/per_device.h"

namespace fathom {

// Of the current GPU.
inline int multiprocessors() {
  static PerDevice<int> count;
  return count.get([] {
    int multiprocessors = 0;
    FATHOM_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, current_gpu()));
    return multiprocessors;
  });
}

}  // namespace fathom
