#include "step_graph.h"

#include <cuda_runtime.h>

#include <memory>
#include <optional>
#include <utility>

#include "core/expect.h"
#include "cuda/check.h"
#include "cuda/graph.h"

namespace fathom::lab::expert_dispatch_gpu {
namespace {

// Loads all kernels, which is not allowed during capture. A rank may wait for its GPU to load one, and hold
// what other ranks need to load theirs. So no kernel waits for another rank's while one is loaded: ranks
// enqueue one half, and wait for each other.
void load_kernels(const Dispatch& p, Context& context, const Halves& halves) {
  const auto together = [&](auto&& enqueue) {
    enqueue();
    FATHOM_CUDA(cudaStreamSynchronize(context.stream));
    context.rank->barrier();
  };
  together([&] {
    if (halves.begin) halves.begin(context.stream);
  });
  int index = 0;
  for (const Exchange* exchange : {&p.tokens, &p.nonce}) {
    together([&] { halves.dispatch(*exchange, index, context.stream); });
    together([&] { halves.combine(*exchange, index, context.stream); });
    ++index;
  }
}

}  // namespace

Call captured(const Dispatch& p, Context& context, Halves halves) {
  // What the graph uses outlives it.
  struct Captured {
    Halves halves;
    std::optional<CudaGraph> graph;
  };
  const auto kept = std::make_shared<Captured>(Captured{.halves = std::move(halves), .graph = {}});
  load_kernels(p, context, kept->halves);
  kept->graph.emplace(context.stream, [&, stream = context.stream] {
    for (const Exchange* exchange : {&p.tokens, &p.nonce})
      if (const View<float, 2>& out = exchange->out; out.size() > 0)
        FATHOM_CUDA(cudaMemsetAsync(out.data(), 0, static_cast<size_t>(out.bytes()), stream));
    if (kept->halves.begin) kept->halves.begin(stream);
    for (int i = 0; i < kExchanges; ++i) {
      const Exchange& exchange = i < kLayers ? p.tokens : p.nonce;
      kept->halves.dispatch(exchange, i, stream);
      kept->halves.combine(exchange, i, stream);
    }
  });
  return [kept, of = p.tokens.out.data()](const Dispatch& q, Context& c) {
    FATHOM_EXPECT(q.tokens.out.data() == of, "a graph is launched on the memory that it was captured with");
    kept->graph->launch(c.stream);
  };
}

}  // namespace fathom::lab::expert_dispatch_gpu
