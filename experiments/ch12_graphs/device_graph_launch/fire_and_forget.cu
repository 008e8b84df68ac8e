// The state chooses which of four graphs runs next, `steps` times.
//
// bytes   32 KiB a kernel, in L2
// flops   0
// limit   none: the question is who starts the next graph
// idea    the four graphs know nothing of each other: a fifth chooses, launches the chosen one at once, and
//         itself again for when that has ended. Two launches a step, where tail_launch needs one
#include <memory>

#include "device_graphs.cuh"

namespace fathom::lab::device_graph_launch {
namespace {

struct FireAndForget {
  static constexpr bool kEveryGraphChooses = false;
  const cudaGraphExec_t* graphs;

  // The launched graph may start before this kernel has ended: nothing it needs is written after this. The
  // tail launch waits for it, so at most one is under way, where 120 are allowed.
  __device__ void next(const Dispatch&, uint32_t, int graph) const {
    __threadfence();  // the token and the count, which the block has written
    (void)cudaGraphLaunch(graphs[graph], cudaStreamGraphFireAndForget);
    (void)cudaGraphLaunch(graphs[kGraphs], cudaStreamGraphTailLaunch);
  }
  __device__ void end() const {}
};

}  // namespace

Call fire_and_forget(const Dispatch& p, StreamRef stream) {
  const auto graphs = std::make_shared<const DeviceGraphs<FireAndForget>>(p, stream);
  return [graphs](const Dispatch& q, StreamRef into) { graphs->launch(q, into); };
}

}  // namespace fathom::lab::device_graph_launch
