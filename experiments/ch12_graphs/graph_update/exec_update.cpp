// x = (x xor step) * factor + l, 24 times         the step changes from call to call
//
// bytes   8 n a kernel, in L2
// flops   0
// limit   none: the question is how the GPU gets the step
// idea    capture again, but keep the executable graph: cudaGraphExecUpdate compares the new graph with it,
//         node by node, and takes over what changed. The shape of the graph must be the same
#include "captured.h"
#include "chain.h"

namespace fathom::lab::graph_update {

Call exec_update(const Chain& p, StreamRef stream) {
  launched(p, stream);  // loads the kernel, which is not allowed during capture
  if (p.in.size() == 0) return [](const Chain&, StreamRef) {};
  const auto exec =
      std::make_shared<const GraphExec>(instantiate(capture(stream, [&] { launched(p, stream); })));
  return [exec](const Chain& q, StreamRef into) {
    const Graph changed = capture(into, [&] { launched(q, into); });
    cudaGraphExecUpdateResultInfo why{};
    FATHOM_CUDA(cudaGraphExecUpdate(exec->get(), changed.get(), &why));
    FATHOM_CUDA(cudaGraphLaunch(exec->get(), into));
  };
}

}  // namespace fathom::lab::graph_update
