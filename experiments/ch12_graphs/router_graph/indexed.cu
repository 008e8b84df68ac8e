// out = sum over the chosen experts of weight W2 relu(W1 x), one token
//
// bytes   4 kTopK width^2   the weights of the chosen experts: 16.8 MB at width 1024
// flops   4 kTopK width^2
// limit   memory bandwidth: 3.8 us at 4.4 TB/s
// idea    no branch at all: the kernels read from memory which expert's weights to take, for all places at
//         once. Engines do this
#include <memory>

#include "core/expect.h"
#include "cuda/graph.h"
#include "layer.cuh"

namespace fathom::lab::router_graph {
namespace {

__global__ void __launch_bounds__(kThreads) indexed_up_kernel(Layer p) {
  up_rows(p, blockIdx.y, p.chosen(blockIdx.y));
}
__global__ void __launch_bounds__(kThreads) indexed_down_kernel(Layer p) {
  down_rows(p, blockIdx.y, p.chosen(blockIdx.y));
}

void launch_layer(const Layer& p, StreamRef stream) {
  const dim3 grid(blocks_for(p.width, kWarps), kTopK);
  launch_router(p, ToMemoryOnly{}, stream);
  indexed_up_kernel<<<grid, kThreads, 0, stream>>>(p);
  FATHOM_LAUNCHED();
  indexed_down_kernel<<<grid, kThreads, 0, stream>>>(p);
  FATHOM_LAUNCHED();
  launch_combine(p, stream);
}

}  // namespace

Call indexed(const Layer& p, StreamRef stream) {
  if (p.width == 0) return [](const Layer&, StreamRef) {};
  launch_layer(p, stream);  // loads the kernels, which is not allowed during capture
  const auto graph = std::make_shared<const CudaGraph>(stream, [&] { launch_layer(p, stream); });
  return [graph, of = p.out.data()](const Layer& q, StreamRef into) {
    FATHOM_EXPECT(q.out.data() == of, "a graph is launched on the memory that it was captured with");
    graph->launch(into);
  };
}

}  // namespace fathom::lab::router_graph
