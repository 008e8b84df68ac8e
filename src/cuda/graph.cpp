#include "cuda/graph.h"

#include "cuda/check.h"

namespace fathom {

CudaGraph::CudaGraph(StreamRef stream, const std::function<void()>& enqueue) {
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
  FATHOM_CUDA(cudaStreamEndCapture(stream, &captured));
  cudaGraphExec_t exec    = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&exec, captured, 0);
  (void)cudaGraphDestroy(captured);
  FATHOM_CUDA(error);
  exec_.reset(exec);
}

void CudaGraph::launch(StreamRef stream) const { FATHOM_CUDA(cudaGraphLaunch(exec_.get(), stream)); }

void CudaGraph::End::operator()(cudaGraphExec_t graph) const { (void)cudaGraphExecDestroy(graph); }

}  // namespace fathom
