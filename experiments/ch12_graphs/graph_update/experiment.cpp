// A graph holds the arguments that its kernels were captured with. When one of them changes from call to
// call, it has to be captured again, or updated, or read from memory. What does each cost?
#include "lab/experiment.h"

#include "chain.h"

namespace fathom::lab::graph_update {

Chain::Chain(const Point& at, Arena& arena)
    : in(arena.input<uint32_t>({at["items"]}, Uniform{0, 0x1p32})),
      step(arena.input<uint32_t>({1}, Uniform{0, 0x1p32}, Pages::small, Place::host)),
      out(arena.output<uint32_t>({at["items"]})),
      step_on_device(arena.workspace<uint32_t>({1})) {
  FATHOM_EXPECT(at["items"] <= kMaxItems, "the chain is for small vectors: the host's work is the subject");
}

Cost Chain::cost() const { return {.read = in.bytes(), .written = out.bytes()}; }

uint32_t Chain::expected(int64_t i) const {
  uint64_t x = in(i);
  for (uint64_t l = 0; l < kKernels; ++l) x = ((x ^ step(0)) * kFactor + l) % (uint64_t{1} << 32);
  return static_cast<uint32_t>(x);
}

const Experiment<Chain> chain{
    .question =
        "An argument of 24 captured kernels changes from call to call: what does it cost to capture the "
        "graph "
        "again, to update the executable graph, or to read the argument from device memory?",
    .limit    = Limit::none,
    .axes     = {{"items", {4096}}},
    .check_at = {{"items", {0, 1, 255, 256, 257, 4099}}},
    .variants =
        {
            {.id         = "recaptured",
             .techniques = {"graph_replay"},
             .idea       = "captured, instantiated, launched and destroyed in each call",
             .prepare    = prepared_on_gpu(recaptured),
             .syncs      = true},  // here and below: the host's work is the subject
            // 24 launches at 3 to 4 us, against the same 24 for the capture and an instantiation.
            {.id         = "launched",
             .launch     = on_gpu(launched),
             .techniques = {},
             .idea       = "no graph: 24 launches with the new argument",
             .prediction = predict::ratio_at_least(1.5),
             .syncs      = true},
            {.id         = "exec_update",
             .techniques = {"graph_replay", "graph_update"},
             .idea       = "captured in each call, and compared with the executable graph, which is kept",
             .prediction = predict::ratio_at_least(1.3),
             .prepare    = prepared_on_gpu(exec_update),
             .syncs      = true},
            {.id         = "node_params",
             .techniques = {"graph_replay", "graph_update"},
             .idea       = "each node of the executable graph gets its new arguments",
             .prediction = predict::ratio_at_least(2),
             .prepare    = prepared_on_gpu(node_params),
             .syncs      = true},
            {.id         = "from_device",
             .techniques = {"graph_replay"},
             .idea = "the graph stays; its kernels read the argument, which is copied before the launch",
             .prediction = predict::ratio_at_least(3),
             .prepare    = prepared_on_gpu(from_device),
             .syncs      = true},
        },
    .backend = Backend::cuda,
    .cache   = Cache::hot,
    .sets    = 1,  // a graph holds the addresses it was captured with
    .catalog = {"graphs-005"},
};
FATHOM_REGISTER(chain);

}  // namespace fathom::lab::graph_update
