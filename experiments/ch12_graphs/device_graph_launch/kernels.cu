// The kernels that variants share: those of the four graphs, and the choice for the host and for nodes.
//
// bytes   32 KiB a kernel, in L2
// flops   0
// limit   none: the question is who starts the next graph
#include "kernels.h"

#include "choose.cuh"

namespace fathom::lab::device_graph_launch {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) begin_kernel(Dispatch p) {
  const int i   = blockIdx.x * kThreads + threadIdx.x;  // below kWidth
  p.state(0, i) = p.start(i);
  for (int64_t t = i; t <= p.steps; t += kWidth) p.tokens(t) = 0;
  if (i == 0) p.count(0) = 0;
}

__global__ void __launch_bounds__(kThreads) layer_kernel(Dispatch p, int graph, int layer) {
  const int i                 = blockIdx.x * kThreads + threadIdx.x;  // below kWidth
  const int other             = (i + (1 << layer)) % kWidth;
  p.state((layer + 1) % 2, i) = mix(p.state(layer % 2, i) + p.state(layer % 2, other) + graph);
}

struct ToHost {
  __device__ void next(const Dispatch& p, uint32_t tokens, int graph) const {
    *static_cast<volatile uint32_t*>(p.on_host.data()) = kGraphs * tokens + graph;
  }
  __device__ void end() const {}
};
struct ToNodes {
  Nodes nodes;
  __device__ void next(const Dispatch&, uint32_t, int graph) const {
    cudaGraphSetConditional(nodes.more, 1);
    cudaGraphSetConditional(nodes.which, graph);
  }
  __device__ void end() const {
    cudaGraphSetConditional(nodes.more, 0);
    cudaGraphSetConditional(nodes.which, kGraphs);  // none
  }
};

}  // namespace

void load_kernels(const Dispatch& p, StreamRef stream) {
  launch_begin(p, stream);
  launch_graph(p, 0, stream);
  launch_choose_for_host(p, stream);
  load_choose<ToNodes>();  // this one only a graph can run
}

void launch_begin(const Dispatch& p, StreamRef stream) {
  begin_kernel<<<kWidth / kThreads, kThreads, 0, stream>>>(p);
  FATHOM_LAUNCHED();
}

void launch_graph(const Dispatch& p, int graph, StreamRef stream) {
  for (int l = 0; l < kernels_of(graph); ++l) {
    layer_kernel<<<kWidth / kThreads, kThreads, 0, stream>>>(p, graph, l);
    FATHOM_LAUNCHED();
  }
}

void launch_choose_for_host(const Dispatch& p, StreamRef stream) { launch_choose(p, ToHost{}, stream); }

void launch_choose_for_nodes(const Dispatch& p, Nodes nodes, StreamRef stream) {
  launch_choose(p, ToNodes{nodes}, stream);
}

}  // namespace fathom::lab::device_graph_launch
