// The condition of the experiment: one block of four warps on each multiprocessor, one warp for each of its
// four schedulers. So it goes to a kernel whose tiles fill shared memory or whose state fills the registers.
#pragma once

#include "cuda/check.h"

namespace fathom::lab::ilp {

inline constexpr int kThreads = 128;

inline int one_block_per_multiprocessor() {
  int device = 0, multiprocessors = 0;
  FATHOM_CUDA(cudaGetDevice(&device));
  FATHOM_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  return multiprocessors;
}

}  // namespace fathom::lab::ilp
