// out = sum over the chosen experts of weight W2 relu(W1 x), one token
//
// bytes   4 kTopK width^2   the weights of the chosen experts: 16.8 MB at width 1024
// flops   4 kTopK width^2
// limit   memory bandwidth: 3.8 us at 4.4 TB/s
// idea    the ten kernels of switch_nodes without its nodes: place after place, kernels that look up the
//         expert. What switch_nodes takes beyond this is the price of four nodes
#include <memory>

#include "core/expect.h"
#include "cuda/graph.h"
#include "layer.cuh"

namespace fathom::lab::router_graph {
namespace {

__global__ void __launch_bounds__(kThreads) place_up_kernel(Layer p, int place) {
  up_rows(p, place, p.chosen(place));
}
__global__ void __launch_bounds__(kThreads) place_down_kernel(Layer p, int place) {
  down_rows(p, place, p.chosen(place));
}

void launch_layer(const Layer& p, StreamRef stream) {
  launch_router(p, ToMemoryOnly{}, stream);
  for (int place = 0; place < kTopK; ++place) {
    place_up_kernel<<<blocks_for(p.width, kWarps), kThreads, 0, stream>>>(p, place);
    FATHOM_LAUNCHED();
    place_down_kernel<<<blocks_for(p.width, kWarps), kThreads, 0, stream>>>(p, place);
    FATHOM_LAUNCHED();
  }
  launch_combine(p, stream);
}

}  // namespace

Call indexed_each(const Layer& p, StreamRef stream) {
  if (p.width == 0) return [](const Layer&, StreamRef) {};
  launch_layer(p, stream);  // loads the kernels, which is not allowed during capture
  const auto graph = std::make_shared<const CudaGraph>(stream, [&] { launch_layer(p, stream); });
  return [graph, of = p.out.data()](const Layer& q, StreamRef into) {
    FATHOM_EXPECT(q.out.data() == of, "a graph is launched on the memory that it was captured with");
    graph->launch(into);
  };
}

}  // namespace fathom::lab::router_graph
