// A chain captured as a graph. The graph holds the addresses it was captured with, so it serves one problem
// only.
#pragma once

#include <memory>

#include "chain.h"
#include "core/expect.h"
#include "cuda/graph.h"

namespace fathom::lab::dependent_launch {

inline Call replay_of(void (*enqueue)(const Chain&, StreamRef), const Chain& p, StreamRef stream) {
  enqueue(p, stream);  // loads the kernels, which is not allowed during capture
  const auto graph = std::make_shared<const CudaGraph>(stream, [&] { enqueue(p, stream); });
  return [graph, of = p.out.data()](const Chain& q, StreamRef into) {
    FATHOM_EXPECT(q.out.data() == of, "a graph is launched on the memory that it was captured with");
    graph->launch(into);
  };
}

}  // namespace fathom::lab::dependent_launch
