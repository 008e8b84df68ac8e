// The state chooses which of four graphs runs next, `steps` times.
//
// bytes   32 KiB a kernel, in L2
// flops   0
// limit   none: the question is who starts the next graph
// idea    none yet: a kernel writes the choice to page-locked memory; the host waits for the stream,
//         reads it, and launches that graph
#include "cuda/check.h"
#include "host_graphs.h"

namespace fathom::lab::device_graph_launch {

Call host_reads(const Dispatch& p, StreamRef stream) {
  const auto graphs = capture_host_graphs(p, stream);
  return [graphs](const Dispatch& q, StreamRef into) {
    graphs->launch_start(q, into);
    for (int64_t step = 0; step < q.steps; ++step) {
      FATHOM_CUDA(cudaStreamSynchronize(into));
      graphs->launch_next(*static_cast<const volatile uint32_t*>(q.on_host.data()), into);
    }
  };
}

}  // namespace fathom::lab::device_graph_launch
