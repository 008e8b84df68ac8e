#include "cuda/conditional_node.h"

#include <memory>

#include "core/expect.h"
#include "cuda/check.h"

namespace fathom {
namespace {

struct DestroyStream {
  void operator()(cudaStream_t stream) const { (void)cudaStreamDestroy(stream); }
};

struct Capture {
  cudaGraph_t graph                  = nullptr;
  const cudaGraphNode_t* last        = nullptr;  // what the next work of the stream depends on
  const cudaGraphEdgeData* last_data = nullptr;
  size_t last_count                  = 0;
};

Capture capture_of(StreamRef stream) {
  Capture now;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  FATHOM_CUDA(cudaStreamGetCaptureInfo(stream, &status, nullptr, &now.graph, &now.last, &now.last_data,
                                       &now.last_count));
  FATHOM_EXPECT(status == cudaStreamCaptureStatusActive,
                "conditional nodes are added while the stream is captured (cuda/graph.h)");
  return now;
}

}  // namespace

cudaGraphConditionalHandle make_conditional_handle(StreamRef stream, unsigned initial) {
  cudaGraphConditionalHandle handle{};
  FATHOM_CUDA(cudaGraphConditionalHandleCreate(&handle, capture_of(stream).graph, initial,
                                               cudaGraphCondAssignDefault));
  return handle;
}

void add_conditional_node(StreamRef stream, cudaGraphConditionalHandle handle,
                          cudaGraphConditionalNodeType type, const std::vector<GraphBody>& bodies) {
  FATHOM_EXPECT(!bodies.empty(), "a conditional node has a body");
  const Capture now           = capture_of(stream);
  cudaGraphNodeParams node    = {};
  node.type                   = cudaGraphNodeTypeConditional;
  node.conditional.handle     = handle;
  node.conditional.type       = type;
  node.conditional.size       = static_cast<unsigned>(bodies.size());
  cudaGraphNode_t conditional = nullptr;
  FATHOM_CUDA(cudaGraphAddNode(&conditional, now.graph, now.last, now.last_data, now.last_count, &node));

  // A body is a graph of its own, so it is captured from another stream.
  cudaStream_t made = nullptr;
  FATHOM_CUDA(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
  const std::unique_ptr<CUstream_st, DestroyStream> own(made);
  for (size_t b = 0; b < bodies.size(); ++b) {
    cudaGraph_t body = node.conditional.phGraph_out[b];
    FATHOM_CUDA(
        cudaStreamBeginCaptureToGraph(made, body, nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal));
    try {
      bodies[b](made);
    } catch (...) {
      (void)cudaStreamEndCapture(made, &body);
      throw;
    }
    FATHOM_CUDA(cudaStreamEndCapture(made, &body));
  }
  FATHOM_CUDA(cudaStreamUpdateCaptureDependencies(stream, &conditional, nullptr, 1,
                                                  cudaStreamSetCaptureDependencies));
}

}  // namespace fathom
