// out = sum over the chosen experts of weight W2 relu(W1 x), one token
//
// bytes   4 kTopK width^2   the weights of the chosen experts: 16.8 MB at width 1024
// flops   4 kTopK width^2
// limit   memory bandwidth: 3.8 us at 4.4 TB/s
// idea    switches_side_by_side the other way round: an IF node for each expert, whose body runs if the
//         router chose it, in place of a SWITCH node for each place. E bodies in place of E kTopK, but E
//         nodes that are asked in each call
#include <memory>

#include "branches.cuh"
#include "core/expect.h"
#include "cuda/graph.h"

namespace fathom::lab::router_graph {
namespace {

struct ToExperts {
  cudaGraphConditionalHandle handles[kMaxExperts];
  __device__ void choose(int, int expert) const { cudaGraphSetConditional(handles[expert], 1); }
};

// Where the router put this expert, which it has chosen.
__device__ int place_of(const Layer& p, int expert) {
  int place = 0;
  for (int other = 1; other < kTopK; ++other)
    if (p.chosen(other) == expert) place = other;
  return place;
}
__global__ void __launch_bounds__(kThreads) chosen_up_kernel(Layer p, int expert) {
  up_rows(p, place_of(p, expert), expert);
}
__global__ void __launch_bounds__(kThreads) chosen_down_kernel(Layer p, int expert) {
  down_rows(p, place_of(p, expert), expert);
}

void launch_chosen(const Layer& p, int expert, StreamRef stream) {
  chosen_up_kernel<<<blocks_for(p.width, kWarps), kThreads, 0, stream>>>(p, expert);
  FATHOM_LAUNCHED();
  chosen_down_kernel<<<blocks_for(p.width, kWarps), kThreads, 0, stream>>>(p, expert);
  FATHOM_LAUNCHED();
}

}  // namespace

Call if_nodes(const Layer& p, StreamRef stream) {
  if (p.width == 0) return [](const Layer&, StreamRef) {};
  host_branches(p, stream);   // loads its kernels, which is not allowed during capture
  cudaFuncAttributes loaded;  // these only a graph runs
  FATHOM_CUDA(cudaFuncGetAttributes(&loaded, router_kernel<ToExperts>));
  FATHOM_CUDA(cudaFuncGetAttributes(&loaded, chosen_up_kernel));
  FATHOM_CUDA(cudaFuncGetAttributes(&loaded, chosen_down_kernel));
  const Branches branches(p.experts());
  const auto graph = std::make_shared<const CudaGraph>(stream, [&] {
    ToExperts nodes = {};
    for (int expert = 0; expert < p.experts(); ++expert)
      nodes.handles[expert] = make_conditional_handle(stream, 0);
    launch_router(p, nodes, stream);
    branches.capture(stream, [&](int expert, StreamRef branch) {
      add_conditional_node(branch, nodes.handles[expert], cudaGraphCondTypeIf,
                           {[&p, expert](StreamRef body) { launch_chosen(p, expert, body); }});
    });
    launch_combine(p, stream);
  });
  return [graph, of = p.out.data()](const Layer& q, StreamRef into) {
    FATHOM_EXPECT(q.out.data() == of, "a graph is launched on the memory that it was captured with");
    graph->launch(into);
  };
}

}  // namespace fathom::lab::router_graph
