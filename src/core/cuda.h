// Checks for CUDA's calls; for .cu files and what only a CUDA build compiles.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "core/expect.h"

namespace fathom {

// Throws SystemError with the call, CUDA's name and words for the error, file and line.
void cuda_failed(const char* call, cudaError_t error, const char* file, int line);

// Blocks of `block` threads that cover n elements; a grid of one where n is 0 would still run, so callers
// return first.
constexpr unsigned blocks_for(int64_t n, int64_t block) {
  return static_cast<unsigned>((n + block - 1) / block);
}

}  // namespace fathom

#define FATHOM_CUDA(call)                                                                            \
  do {                                                                                               \
    const cudaError_t fathom_error = (call);                                                         \
    if (fathom_error != cudaSuccess) ::fathom::cuda_failed(#call, fathom_error, __FILE__, __LINE__); \
  } while (false)

// After every <<<>>>: a launch that was refused is an error here, not a kernel that never ran.
#define FATHOM_LAUNCHED() FATHOM_CUDA(cudaGetLastError())
