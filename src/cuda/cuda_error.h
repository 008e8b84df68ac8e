// The error of a CUDA call, for those that catch it.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "core/errors.h"

namespace fathom {

// What a failed call throws: the call, CUDA's name and text of the error, file and line.
class CudaError : public SystemError {
 public:
  CudaError(const std::string& text, cudaError_t error) : SystemError(text), error_(error) {}
  cudaError_t error() const { return error_; }

 private:
  cudaError_t error_;
};

}  // namespace fathom
