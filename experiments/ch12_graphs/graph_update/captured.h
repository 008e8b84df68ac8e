// A captured graph and what was instantiated from it, kept together: updates name the nodes of the first.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <utility>

#include "cuda/check.h"
#include "cuda/stream.h"

namespace fathom::lab::graph_update {

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { (void)cudaGraphDestroy(graph); }
};
struct DestroyExec {
  void operator()(cudaGraphExec_t exec) const { (void)cudaGraphExecDestroy(exec); }
};
using Graph     = std::unique_ptr<CUgraph_st, DestroyGraph>;
using GraphExec = std::unique_ptr<CUgraphExec_st, DestroyExec>;

// `enqueue` must not throw: the stream would go on capturing.
template <class Enqueue>
Graph capture(StreamRef stream, Enqueue enqueue) {
  cudaGraph_t graph = nullptr;
  FATHOM_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  enqueue();
  FATHOM_CUDA(cudaStreamEndCapture(stream, &graph));
  return Graph(graph);
}

inline GraphExec instantiate(const Graph& graph) {
  cudaGraphExec_t exec = nullptr;
  FATHOM_CUDA(cudaGraphInstantiate(&exec, graph.get(), 0));
  return GraphExec(exec);
}

}  // namespace fathom::lab::graph_update
