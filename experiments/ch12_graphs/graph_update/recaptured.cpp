// x = (x xor step) * factor + l, 24 times         the step changes from call to call
//
// bytes   8 n a kernel, in L2
// flops   0
// limit   none: the question is how the GPU gets the step
// idea    the simplest graph: capture the launches with this call's step, instantiate, launch, destroy. A
//         graph that is destroyed while it runs is freed when it has ended
#include "chain.h"
#include "cuda/graph.h"

namespace fathom::lab::graph_update {

Call recaptured(const Chain& p, StreamRef stream) {
  launched(p, stream);  // loads the kernel, which is not allowed during capture
  return [](const Chain& q, StreamRef into) {
    if (q.in.size() > 0) CudaGraph(into, [&] { launched(q, into); }).launch(into);
  };
}

}  // namespace fathom::lab::graph_update
