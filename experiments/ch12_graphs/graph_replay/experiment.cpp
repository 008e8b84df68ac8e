// A decode step is some forty kernels, each of which the host must launch. What does it gain to launch them
// once, into a graph, and then the graph?
#include "experiments/engine_session.h"

namespace fathom::lab::graph_replay {

using namespace engine_session;
using Graphs = engine::EngineConfig::Graphs;

// All there from the start, and with answers of one length, so that nearly all steps have as many rows as
// there are sequences.
Workload decoding(int64_t sequences) {
  return [=](uint64_t seed) {
    std::vector<Asked> asked = short_answers(sequences)(seed);
    for (Asked& request : asked) request.max_tokens = 512, request.exactly = true;
    return asked;
  };
}

auto starts(Graphs graphs) {
  return [=](const Point& at) {
    engine::EngineConfig config = on_gpu();
    config.graphs               = graphs;
    return replay_on(engine_of(config), decoding(at["sequences"]), count_graphs);
  };
}

const SessionExperiment experiment{
    .question =
        "The bundled model decodes 512 tokens: what is a step's cost when the host launches every kernel, "
        "and when it launches one graph of them?",
    .axes = {{"sequences", {1, 32}}},
    .variants =
        {
            {.id         = "launched",
             .start      = starts(Graphs::none),
             .techniques = {"batching"},
             .idea       = "every kernel by itself, each beginning while the one before ends"},
            {.id         = "replayed",
             .start      = starts(Graphs::whole),
             .techniques = {"batching", "graph_replay"},
             .idea       = "the same kernels from one graph, captured before the first request",
             .prediction = predict::ratio(1.6)},
        },
    .catalog = {"graphs-001", "graphs-002"},
    .backend = Backend::cuda,
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::graph_replay
