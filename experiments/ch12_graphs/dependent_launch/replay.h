// A chain as a graph: captured once, launched as one. It holds the addresses that it was captured with, so it
// is for one problem only.
#pragma once

#include <memory>

#include "chain.h"
#include "core/cuda_graph.h"

namespace fathom::lab::dependent_launch {

inline Call replay_of(void (*enqueue)(const Chain&, StreamRef), const Chain& p, StreamRef stream) {
  enqueue(p, stream);  // loads the kernels, which no capture may do
  const auto graph = std::make_shared<const CudaGraph>(stream, [&] { enqueue(p, stream); });
  return [graph, of = p.out.data()](const Chain& q, StreamRef into) {
    FATHOM_EXPECT(q.out.data() == of, "a graph is launched on the memory that it was captured with");
    graph->launch(into);
  };
}

}  // namespace fathom::lab::dependent_launch
