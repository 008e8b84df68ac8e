// A decode step is some forty kernels, and the host launches each of them. What does a step gain when the
// host captures them in a graph once, and launches the graph?
#include "experiments/engine_session.h"

namespace fathom::lab::graph_replay {

using namespace engine_session;
using CudaGraphMode = engine::EngineConfig::CudaGraphMode;

// All requests are there from the start and have answers of one length, so that nearly all steps have a row
// for every sequence.
Workload decoding(int64_t sequences) {
  return [=](uint64_t seed) {
    std::vector<Asked> asked = short_answers(sequences)(seed);
    for (Asked& request : asked) request.max_tokens = 512, request.exactly = true;
    return asked;
  };
}

auto starts(CudaGraphMode graphs) {
  return [=](const Point& at) {
    engine::EngineConfig config = on_gpu();
    config.cudagraph_mode       = graphs;
    return replay_on(engine_of(config), decoding(at["sequences"]), count_graphs);
  };
}

const Experiment<Session> experiment{
    .question =
        "The bundled model decodes 512 tokens: what does a step cost when the host launches every kernel, "
        "and "
        "when it launches one graph?",
    .axes = {{"sequences", {1, 32}}},
    .variants =
        {
            {.id         = "launched",
             .start      = starts(CudaGraphMode::none),
             .techniques = {"batching"},
             .idea       = "the host launches every kernel (programmatic dependent launch)"},
            {.id         = "replayed",
             .start      = starts(CudaGraphMode::full),
             .techniques = {"batching", "graph_replay"},
             .idea       = "the same kernels in one graph, captured before the first request",
             .prediction = predict::ratio(1.6)},
        },
    .backend = Backend::cuda,
    .catalog = {"graphs-001", "graphs-002"},
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::graph_replay
