// out = sum over the chosen experts of weight W2 relu(W1 x), one token
//
// bytes   4 kTopK width^2   the weights of the chosen experts: 16.8 MB at width 1024
// flops   4 kTopK width^2
// limit   memory bandwidth: 3.8 us at 4.4 TB/s
// idea    switch_nodes whose four nodes need only the router, and not one another: what a node costs, it
//         costs beside the others, and the kernels of four experts may run at the same time
#include <array>
#include <memory>
#include <vector>

#include "core/expect.h"
#include "cuda/conditional_node.h"
#include "cuda/event.h"
#include "cuda/graph.h"
#include "layer.cuh"

namespace fathom::lab::router_graph {
namespace {

struct DestroyStream {
  void operator()(CUstream_st* stream) const { (void)cudaStreamDestroy(stream); }
};
using OwnedStream = std::unique_ptr<CUstream_st, DestroyStream>;

OwnedStream make_stream() {
  cudaStream_t stream = nullptr;
  FATHOM_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return OwnedStream(stream);
}

}  // namespace

Call switches_side_by_side(const Layer& p, StreamRef stream) {
  if (p.width == 0) return [](const Layer&, StreamRef) {};
  host_branches(p, stream);  // loads its kernels, which is not allowed during capture
  cudaFuncAttributes loaded;
  FATHOM_CUDA(cudaFuncGetAttributes(&loaded, router_kernel<ToNodes>));  // this one only a graph can run
  // Of the capture alone: a branch of the graph for each place.
  std::array<OwnedStream, kTopK> branches;
  for (OwnedStream& branch : branches) branch = make_stream();
  const Event chosen(Event::Timing::off), ran(Event::Timing::off);
  const auto graph = std::make_shared<const CudaGraph>(stream, [&] {
    ToNodes nodes;
    for (auto& handle : nodes.handles) handle = make_conditional_handle(stream, 0);
    launch_router(p, nodes, stream);
    chosen.record(stream);
    for (int place = 0; place < kTopK; ++place) {
      const StreamRef branch = branches[place].get();
      chosen.wait_on(branch);
      std::vector<GraphBody> bodies;
      for (int expert = 0; expert < p.experts(); ++expert)
        bodies.push_back([&p, place, expert](StreamRef body) { launch_expert(p, place, expert, body); });
      add_conditional_node(branch, nodes.handles[place], cudaGraphCondTypeSwitch, bodies);
      ran.record(branch);
      ran.wait_on(stream);
    }
    launch_combine(p, stream);
  });
  return [graph, of = p.out.data()](const Layer& q, StreamRef into) {
    FATHOM_EXPECT(q.out.data() == of, "a graph is launched on the memory that it was captured with");
    graph->launch(into);
  };
}

}  // namespace fathom::lab::router_graph
