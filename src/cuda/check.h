// Checks of CUDA calls, for .cu files and others that only a CUDA build compiles.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/expect.h"

namespace fathom {

// Throws CudaError; DeviceLost, with the same text, where the error has destroyed the context.
void cuda_failed(const char* call, cudaError_t error, const char* file, int line);

// Blocks of `block` threads that cover n elements. Callers return early for n = 0: a grid of 0 blocks is an
// error.
constexpr unsigned blocks_for(int64_t n, int64_t block) {
  return static_cast<unsigned>((n + block - 1) / block);
}

}  // namespace fathom

#define FATHOM_CUDA(call)                                                                            \
  do {                                                                                               \
    const cudaError_t fathom_error = (call);                                                         \
    if (fathom_error != cudaSuccess) ::fathom::cuda_failed(#call, fathom_error, __FILE__, __LINE__); \
  } while (false)

// After every <<<>>>: reports a launch that failed, which would otherwise go unnoticed.
#define FATHOM_LAUNCHED() FATHOM_CUDA(cudaGetLastError())
