// A loop of up to `steps` steps of 5 small kernels, whose end only the GPU knows.
//
// bytes   160 KiB a step, in L2
// flops   0
// limit   none: the question is who starts the next step
// idea    the whole loop is one graph: a WHILE node runs the step as long as the step's last kernel says so.
//         The host launches once and waits for nothing
#include <memory>

#include "core/expect.h"
#include "cuda/conditional_node.h"
#include "cuda/graph.h"
#include "decode.cuh"

namespace fathom::lab::conditional_loop {

Call while_node(const Decode& p, StreamRef stream) {
  if (p.steps == 0) return [](const Decode&, StreamRef) {};
  host_loop(p, stream);  // loads its kernels, which is not allowed during capture
  cudaFuncAttributes loaded;
  FATHOM_CUDA(
      cudaFuncGetAttributes(&loaded, token_kernel<ToNode>));  // and this one, which only a graph can run
  const auto graph = std::make_shared<const CudaGraph>(stream, [&] {
    launch_begin(p, stream);
    const cudaGraphConditionalHandle more = make_conditional_handle(stream, 1);
    add_conditional_node(stream, more, cudaGraphCondTypeWhile,
                         {[&](StreamRef body) { launch_step(p, ToNode{more}, body); }});
  });
  return [graph, of = p.tokens.data()](const Decode& q, StreamRef into) {
    FATHOM_EXPECT(q.tokens.data() == of, "a graph is launched on the memory that it was captured with");
    graph->launch(into);
  };
}

}  // namespace fathom::lab::conditional_loop
