#include "cuda/graph.h"

#include "cuda/capture_error.h"
#include "cuda/check.h"
#include "cuda/cuda_error.h"

namespace fathom {
namespace {

// The error that ends a capture, with what the caller can do about it.
[[noreturn]] void rethrow_explained(const CudaError& error) {
  const std::string why = capture_error_text(error.error());
  if (why.empty()) throw error;
  throw CudaError(std::string(error.what()) + ". The step cannot be captured in a CUDA graph: " + why,
                  error.error());
}

cudaGraph_t capture(StreamRef stream, const std::function<void()>& enqueue) {
  cudaGraph_t captured = nullptr;
  FATHOM_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  try {
    enqueue();
  } catch (...) {
    (void)cudaStreamEndCapture(stream, &captured);
    if (captured) (void)cudaGraphDestroy(captured);
    (void)cudaGetLastError();  // clears the error of the aborted capture
    throw;
  }
  const cudaError_t error = cudaStreamEndCapture(stream, &captured);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();  // as above: the next launch would report it
    cuda_failed("cudaStreamEndCapture", error, __FILE__, __LINE__);
  }
  return captured;
}

}  // namespace

CudaGraph::CudaGraph(StreamRef stream, const std::function<void()>& enqueue, LaunchedBy by) {
  cudaGraph_t captured = nullptr;
  try {
    captured = capture(stream, enqueue);
  } catch (const CudaError& error) {
    rethrow_explained(error);
  }
  cudaGraphExec_t exec    = nullptr;
  const cudaError_t error = cudaGraphInstantiate(
      &exec, captured, by == LaunchedBy::kernels ? cudaGraphInstantiateFlagDeviceLaunch : 0);
  (void)cudaGraphDestroy(captured);
  if (error != cudaSuccess) (void)cudaGetLastError();  // the caller may go on without a graph
  FATHOM_CUDA(error);
  exec_.reset(exec);
  if (by == LaunchedBy::kernels) FATHOM_CUDA(cudaGraphUpload(exec, stream));
}

void CudaGraph::launch(StreamRef stream) const { FATHOM_CUDA(cudaGraphLaunch(exec_.get(), stream)); }

void CudaGraph::End::operator()(cudaGraphExec_t graph) const { (void)cudaGraphExecDestroy(graph); }

}  // namespace fathom
