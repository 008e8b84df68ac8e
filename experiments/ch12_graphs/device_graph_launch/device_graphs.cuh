// The graphs that kernels launch, and one that the host launches to begin with. The host launches none of the
// former: a graph must not be launched from the host while a kernel may launch it too.
#pragma once

#include <vector>

#include "choose.cuh"
#include "core/expect.h"
#include "cuda/device_buffer.h"
#include "cuda/graph.h"
#include "cuda/per_device.h"
#include "kernels.h"

namespace fathom::lab::device_graph_launch {

// `To` launches graphs of the array that it is made of: `to.graphs`.
template <class To>
class DeviceGraphs {
 public:
  DeviceGraphs(const Dispatch& p, StreamRef stream)
      : tokens_(p.tokens.data()), handles_(device({current_gpu()}), kGraphs + 1) {
    load_kernels(p, stream);
    load_choose<To>();
    const To to{handles_.data()};
    host_.emplace_back(stream, [&] {
      launch_begin(p, stream);
      launch_choose(p, to, stream);
    });
    for (int graph = 0; graph < kGraphs; ++graph)
      add(stream, [&] {
        launch_graph(p, graph, stream);
        if (To::kEveryGraphChooses) launch_choose(p, to, stream);
      });
    if (!To::kEveryGraphChooses) add(stream, [&] { launch_choose(p, to, stream); });
    std::vector<cudaGraphExec_t> handles;
    for (const CudaGraph& graph : graphs_) handles.push_back(graph.handle());
    device({current_gpu()})
        .to_device(handles_.data(), handles.data(),
                   static_cast<int64_t>(handles.size() * sizeof(cudaGraphExec_t)));
  }

  void launch(const Dispatch& p, StreamRef stream) const {
    FATHOM_EXPECT(p.tokens.data() == tokens_, "a graph is launched on the memory that it was captured with");
    host_.front().launch(stream);
  }

 private:
  template <class Enqueue>
  void add(StreamRef stream, Enqueue enqueue) {
    graphs_.emplace_back(stream, enqueue, CudaGraph::LaunchedBy::kernels);
  }

  const uint32_t* tokens_;
  DeviceBuffer<cudaGraphExec_t> handles_;  // on the device, of graphs_
  std::vector<CudaGraph> graphs_;          // the four, and where they do not choose, one that does
  std::vector<CudaGraph> host_;            // one
};

}  // namespace fathom::lab::device_graph_launch
