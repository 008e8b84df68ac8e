#include "cuda/check.h"

#include <string>

#include "cuda/cuda_error.h"

namespace fathom {
namespace {

// After these the context is gone (CUDA Runtime API, cudaError_t: "must be terminated and relaunched").
bool is_sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable:
      return true;
    default:
      return false;
  }
}

}  // namespace

void cuda_failed(const char* call, cudaError_t error, const char* file, int line) {
  const std::string text = std::string(call) + ": " + cudaGetErrorName(error) + ": " +
                           cudaGetErrorString(error) + " (" + file + ":" + std::to_string(line) + ")";
  if (is_sticky(error)) throw DeviceLost(text);
  throw CudaError(text, error);
}

}  // namespace fathom
