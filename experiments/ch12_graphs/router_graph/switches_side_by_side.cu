// out = sum over the chosen experts of weight W2 relu(W1 x), one token
//
// bytes   4 kTopK width^2   the weights of the chosen experts: 16.8 MB at width 1024
// flops   4 kTopK width^2
// limit   memory bandwidth: 3.8 us at 4.4 TB/s
// idea    switch_nodes whose four nodes need only the router, and not one another: what a node costs, it
//         costs beside the others, and the kernels of four experts may run at the same time
#include <memory>
#include <vector>

#include "branches.cuh"
#include "core/expect.h"
#include "cuda/graph.h"

namespace fathom::lab::router_graph {

Call switches_side_by_side(const Layer& p, StreamRef stream) {
  if (p.width == 0) return [](const Layer&, StreamRef) {};
  host_branches(p, stream);  // loads its kernels, which is not allowed during capture
  cudaFuncAttributes loaded;
  FATHOM_CUDA(cudaFuncGetAttributes(&loaded, router_kernel<ToNodes>));  // this one only a graph can run
  const Branches branches(kTopK);
  const auto graph = std::make_shared<const CudaGraph>(stream, [&] {
    ToNodes nodes;
    for (auto& handle : nodes.handles) handle = make_conditional_handle(stream, 0);
    launch_router(p, nodes, stream);
    branches.capture(stream, [&](int place, StreamRef branch) {
      std::vector<GraphBody> bodies;
      for (int expert = 0; expert < p.experts(); ++expert)
        bodies.push_back([&p, place, expert](StreamRef body) { launch_expert(p, place, expert, body); });
      add_conditional_node(branch, nodes.handles[place], cudaGraphCondTypeSwitch, bodies);
    });
    launch_combine(p, stream);
  });
  return [graph, of = p.out.data()](const Layer& q, StreamRef into) {
    FATHOM_EXPECT(q.out.data() == of, "a graph is launched on the memory that it was captured with");
    graph->launch(into);
  };
}

}  // namespace fathom::lab::router_graph
