// A chain as a graph: captured once, launched as one. It holds the addresses that it was captured with, so it
// is for one problem only.
#pragma once

#include <memory>

#include "chain.h"
#include "core/cuda.h"

namespace fathom::lab::dependent_launch {

inline Call replay_of(void (*enqueue)(const Chain&, StreamRef), const Chain& p, StreamRef stream) {
  enqueue(p, stream);  // loads the kernels, which no capture may do
  cudaGraph_t captured = nullptr;
  FATHOM_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  enqueue(p, stream);
  FATHOM_CUDA(cudaStreamEndCapture(stream, &captured));
  cudaGraphExec_t made    = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&made, captured, 0);
  (void)cudaGraphDestroy(captured);
  FATHOM_CUDA(error);
  const std::shared_ptr<CUgraphExec_st> exec(made, [](cudaGraphExec_t e) { (void)cudaGraphExecDestroy(e); });
  return [exec, of = p.out.data()](const Chain& q, StreamRef into) {
    FATHOM_EXPECT(q.out.data() == of, "a graph is launched on the memory that it was captured with");
    FATHOM_CUDA(cudaGraphLaunch(exec.get(), into));
  };
}

}  // namespace fathom::lab::dependent_launch
