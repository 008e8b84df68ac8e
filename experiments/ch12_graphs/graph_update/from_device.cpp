// x = (x xor step) * factor + l, 24 times         the step changes from call to call
//
// bytes   8 n a kernel, in L2
// flops   0
// limit   none: the question is how the GPU gets the step
// idea    the graph never changes: its kernels read the step from device memory, where a copy of 4 bytes puts
//         it before each launch. This is what the engine does with a step's inputs
#include <memory>

#include "chain.h"
#include "core/expect.h"
#include "cuda/check.h"
#include "cuda/graph.h"

namespace fathom::lab::graph_update {

Call from_device(const Chain& p, StreamRef stream) {
  launch_reading(p, stream);  // loads the kernel, which is not allowed during capture
  if (p.in.size() == 0) return [](const Chain&, StreamRef) {};
  const auto graph = std::make_shared<const CudaGraph>(stream, [&] { launch_reading(p, stream); });
  return [graph, of = p.out.data()](const Chain& q, StreamRef into) {
    FATHOM_EXPECT(q.out.data() == of, "a graph is launched on the memory that it was captured with");
    // From pageable memory: the driver takes the 4 bytes before it returns.
    FATHOM_CUDA(cudaMemcpyAsync(q.step_on_device.data(), q.step.data(), sizeof(uint32_t),
                                cudaMemcpyHostToDevice, into));
    graph->launch(into);
  };
}

}  // namespace fathom::lab::graph_update
