// The graphs that the host launches, when it decides. Each ends with the choice of the next.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/expect.h"
#include "cuda/graph.h"
#include "kernels.h"

namespace fathom::lab::device_graph_launch {

struct HostGraphs {
  const uint32_t* tokens;  // of the problem that they were captured with
  CudaGraph start;
  std::vector<CudaGraph> graphs;

  void launch_start(const Dispatch& p, StreamRef stream) const {
    FATHOM_EXPECT(p.tokens.data() == tokens, "a graph is launched on the memory that it was captured with");
    start.launch(stream);
  }
  // `word`: what a kernel wrote to on_host.
  void launch_next(uint32_t word, StreamRef stream) const { graphs[word % kGraphs].launch(stream); }
};

inline std::shared_ptr<const HostGraphs> capture_host_graphs(const Dispatch& p, StreamRef stream) {
  load_kernels(p, stream);
  CudaGraph start(stream, [&] {
    launch_begin(p, stream);
    launch_choose_for_host(p, stream);
  });
  std::vector<CudaGraph> graphs;
  for (int graph = 0; graph < kGraphs; ++graph)
    graphs.emplace_back(stream, [&] {
      launch_graph(p, graph, stream);
      launch_choose_for_host(p, stream);
    });
  return std::make_shared<const HostGraphs>(HostGraphs{p.tokens.data(), std::move(start), std::move(graphs)});
}

}  // namespace fathom::lab::device_graph_launch
