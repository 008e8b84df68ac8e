// The state chooses which of four graphs runs next, `steps` times.
//
// bytes   32 KiB a kernel, in L2
// flops   0
// limit   none: the question is who starts the next graph
// idea    one graph: a WHILE node, in whose body a SWITCH node has the four graphs. Kernels set both
// conditions
#include <memory>
#include <vector>

#include "core/expect.h"
#include "cuda/conditional_node.h"
#include "cuda/graph.h"
#include "kernels.h"

namespace fathom::lab::device_graph_launch {

Call while_switch(const Dispatch& p, StreamRef stream) {
  load_kernels(p, stream);
  std::vector<GraphBody> graphs;
  for (int graph = 0; graph < kGraphs; ++graph)
    graphs.push_back([&p, graph](StreamRef body) { launch_graph(p, graph, body); });
  const auto whole = std::make_shared<const CudaGraph>(stream, [&] {
    launch_begin(p, stream);
    const cudaGraphConditionalHandle more = make_conditional_handle(stream, 1);
    add_conditional_node(stream, more, cudaGraphCondTypeWhile, {[&](StreamRef turn) {
                           const cudaGraphConditionalHandle which = make_conditional_handle(turn, kGraphs);
                           launch_choose_for_nodes(p, {more, which}, turn);
                           add_conditional_node(turn, which, cudaGraphCondTypeSwitch, graphs);
                         }});
  });
  return [whole, of = p.tokens.data()](const Dispatch& q, StreamRef into) {
    FATHOM_EXPECT(q.tokens.data() == of, "a graph is launched on the memory that it was captured with");
    whole->launch(into);
  };
}

}  // namespace fathom::lab::device_graph_launch
