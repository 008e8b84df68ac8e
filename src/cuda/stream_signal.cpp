#include "cuda/stream_signal.h"

#include <cudaTypedefs.h>
#include <fmt/format.h>

#include "cuda/check.h"

namespace fathom {
namespace {

// Found by the runtime, so that nothing links the driver's library.
template <class F>
F driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  FATHOM_CUDA(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess || !function)
    throw SystemError(fmt::format("the driver has no {}", name));
  return reinterpret_cast<F>(function);
}

void check(CUresult status, const char* call) {
  if (status != CUDA_SUCCESS) throw SystemError(fmt::format("{}: CUDA driver error {}", call, int{status}));
}

}  // namespace

void signal(StreamRef stream, uint32_t* word, uint32_t value) {
  static const auto write = driver_function<PFN_cuStreamWriteValue32_v11070>("cuStreamWriteValue32");
  check(write(stream, reinterpret_cast<CUdeviceptr>(word), value, CU_STREAM_WRITE_VALUE_DEFAULT),
        "cuStreamWriteValue32");
}

void wait_for_signal(StreamRef stream, const uint32_t* word, uint32_t value) {
  static const auto wait = driver_function<PFN_cuStreamWaitValue32_v11070>("cuStreamWaitValue32");
  check(wait(stream, reinterpret_cast<CUdeviceptr>(word), value, CU_STREAM_WAIT_VALUE_GEQ),
        "cuStreamWaitValue32");
}

}  // namespace fathom
