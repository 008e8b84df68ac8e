// The state chooses which of four graphs runs next, `steps` times.
//
// bytes   32 KiB a kernel, in L2
// flops   0
// limit   none: the question is who starts the next graph
// idea    the last kernel of each graph launches the next graph, which starts when this one has ended.
//         The host launches once
#include <memory>

#include "device_graphs.cuh"

namespace fathom::lab::device_graph_launch {
namespace {

struct TailLaunch {
  static constexpr bool kEveryGraphChooses = true;
  const cudaGraphExec_t* graphs;

  // A graph may launch itself so, once at a time. Tail launches do not pile up: each graph has one.
  __device__ void next(const Dispatch&, uint32_t, int graph) const {
    (void)cudaGraphLaunch(graphs[graph], cudaStreamGraphTailLaunch);
  }
  __device__ void end() const {}
};

}  // namespace

Call tail_launch(const Dispatch& p, StreamRef stream) {
  const auto graphs = std::make_shared<const DeviceGraphs<TailLaunch>>(p, stream);
  return [graphs](const Dispatch& q, StreamRef into) { graphs->launch(q, into); };
}

}  // namespace fathom::lab::device_graph_launch
