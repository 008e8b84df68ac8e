// A graph of some steps and the copy of the flag, which the host launches until the flag says that it is
// done.
#pragma once

#include <memory>

#include "core/expect.h"
#include "cuda/graph.h"
#include "decode.cuh"

namespace fathom::lab::conditional_loop {

inline Call replay_of(int64_t steps_of_graph, const Decode& p, StreamRef stream) {
  if (p.steps == 0) return [](const Decode&, StreamRef) {};
  host_loop(p, stream);  // loads the kernels, which is not allowed during capture
  const auto graph = std::make_shared<const CudaGraph>(stream, [&] {
    for (int64_t step = 0; step < steps_of_graph; ++step) launch_step(p, ToMemoryOnly{}, stream);
    enqueue_flag(p, stream);
  });
  return [=, of = p.tokens.data()](const Decode& q, StreamRef into) {
    FATHOM_EXPECT(q.tokens.data() == of, "a graph is launched on the memory that it was captured with");
    launch_begin(q, into);
    for (int64_t step = 0; step < q.steps; step += steps_of_graph) {
      graph->launch(into);
      if (is_done(q, into)) return;
    }
  };
}

}  // namespace fathom::lab::conditional_loop
