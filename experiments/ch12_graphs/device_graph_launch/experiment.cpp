// Work that is prerecorded in graphs, and a GPU that knows which of them comes next. If the host launches it,
// the GPU waits for the host; a kernel can launch it too.
#include "lab/experiment.h"

#include <vector>

#include "dispatch.h"

namespace fathom::lab::device_graph_launch {

Dispatch::Dispatch(const Point& at, Arena& arena)
    : steps(at["steps"]),
      start(arena.input<uint32_t>({kWidth}, Uniform{0, 0x1p32})),
      tokens(arena.output<uint32_t>({steps + 1})),
      state(arena.workspace<uint32_t>({2, kWidth})),
      count(arena.workspace<uint32_t>({1})),
      on_host(arena.workspace<uint32_t>({1}, Pages::small, Place::pinned)) {
  FATHOM_EXPECT(steps >= 0 && steps < 1 << 20, "up to a million steps");
}

Cost Dispatch::cost() const { return {.read = start.bytes(), .written = tokens.bytes()}; }

void Dispatch::check(Checker& checker) const {
  std::vector<uint32_t> x(start.data(), start.data() + kWidth), next(x.size());
  std::vector<int64_t> expected;
  for (int64_t step = 0; step <= steps; ++step) {
    uint32_t token = 0;
    for (const uint32_t v : x) token += v;
    expected.push_back(token);
    const uint32_t graph = token % kGraphs;
    for (int l = 0; l < kernels_of(static_cast<int>(graph)); ++l, x.swap(next))
      for (size_t i = 0; i < x.size(); ++i) next[i] = mix(x[i] + x[(i + (size_t{1} << l)) % kWidth] + graph);
  }
  checker.values("tokens", tokens, [&](int64_t t) { return expected[static_cast<size_t>(t)]; });
}

namespace {

const Experiment<Dispatch> dispatch{
    .question =
        "A kernel decides which of four graphs comes next: what does it cost that the host reads the "
        "decision "
        "and launches, and what when the kernel launches the graph itself?",
    .limit = Limit::none,
    .axes  = {{"steps", {128}}},
    // 131: past the 120 graphs that one run of a graph may launch and forget.
    .check_at = {{"steps", {0, 1, 2, 3, 17, 131}}},
    .variants =
        {
            // A step: six kernels on average, 8.6 us by ch12/conditional_loop, and 8.9 us for the host.
            {.id         = "host_reads",
             .techniques = {"graph_replay"},
             .idea       = "the host waits for the stream, reads the choice and launches",
             .prepare    = prepared_on_gpu(host_reads),
             .syncs      = true},  // here and below: the host's part is the subject
            {.id         = "host_polls",
             .techniques = {"graph_replay"},
             .idea       = "the host watches the word that the kernel writes",
             .prediction = predict::ratio_at_least(1.1),
             .prepare    = prepared_on_gpu(host_polls),
             .syncs      = true},
            // A turn of WHILE costs 3 us there, a SWITCH 7 to 8 in ch12/router_graph: more than the host.
            {.id         = "while_switch",
             .techniques = {"graph_replay", "conditional_nodes"},
             .idea       = "one graph: a SWITCH node with the four graphs in a WHILE node",
             .prediction = predict::ratio(0.92),
             .prepare    = prepared_on_gpu(while_switch),
             .syncs      = true},
            // 4 us a launch assumed.
            {.id         = "tail_launch",
             .techniques = {"graph_replay", "device_launch"},
             .idea       = "the last kernel of each graph launches the next graph",
             .prediction = predict::ratio_at_least(1.25),
             .prepare    = prepared_on_gpu(tail_launch),
             .syncs      = true},
            {.id         = "fire_and_forget",
             .techniques = {"graph_replay", "device_launch"},
             .idea       = "a graph that chooses launches the chosen one, and itself again after it",
             .prediction = predict::ratio_at_least(1.05),
             .prepare    = prepared_on_gpu(fire_and_forget),
             .syncs      = true},
        },
    .backend = Backend::cuda,
    .cache   = Cache::hot,
    .sets    = 1,  // a graph holds the addresses it was captured with
    .catalog = {"graphs-008"},
};
FATHOM_REGISTER(dispatch);

}  // namespace
}  // namespace fathom::lab::device_graph_launch
