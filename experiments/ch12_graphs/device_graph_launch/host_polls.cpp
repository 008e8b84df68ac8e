// The state chooses which of four graphs runs next, `steps` times.
//
// bytes   32 KiB a kernel, in L2
// flops   0
// limit   none: the question is who starts the next graph
// idea    the host looks at the word itself instead of waiting for the stream: it launches the next
//         graph while the kernel that chose it still ends
#include "cuda/check.h"
#include "host_graphs.h"

namespace fathom::lab::device_graph_launch {
namespace {

// The word that a kernel writes with the `tokens`-th token. Ends in any case, since the stream's work does.
uint32_t poll(const Dispatch& p, int64_t tokens, StreamRef stream) {
  const volatile uint32_t* word = p.on_host.data();
  for (uint64_t polls = 1;; ++polls) {
    if (const uint32_t seen = *word; seen / kGraphs == tokens) return seen;
    if (polls % 4096 > 0) continue;
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaErrorNotReady) {
      (void)cudaGetLastError();  // it is no error, and the next launch would report it
      continue;
    }
    FATHOM_CUDA(state);
    const uint32_t last = *word;
    FATHOM_EXPECT(last / kGraphs == tokens, "the stream has ended, and no kernel has chosen a graph");
    return last;
  }
}

}  // namespace

Call host_polls(const Dispatch& p, StreamRef stream) {
  const auto graphs = capture_host_graphs(p, stream);
  return [graphs](const Dispatch& q, StreamRef into) {
    // The last word of the call before, which has been seen, so that no kernel writes it any more.
    *static_cast<volatile uint32_t*>(q.on_host.data()) = 0;
    graphs->launch_start(q, into);
    for (int64_t step = 0; step < q.steps; ++step) graphs->launch_next(poll(q, step + 1, into), into);
  };
}

}  // namespace fathom::lab::device_graph_launch
