// A graph is captured for one number of rows, and the number of sequences changes at every step. Is it better
// to capture a graph for each number, or a few and pad?
#include "experiments/engine_session.h"

namespace fathom::lab::graph_bucketing {

using namespace engine_session;
using CudaGraphMode = engine::EngineConfig::CudaGraphMode;

auto starts(CudaGraphMode graphs, bool buckets) {
  return [=](const Point& at) {
    engine::EngineConfig config = on_gpu();
    config.cudagraph_mode       = graphs;
    config.graph_buckets        = buckets;
    return replay_on(engine_of(config), answers_of_many_lengths(at["requests"]), count_graphs);
  };
}

const Experiment<Session> experiment{
    .question =
        "Requests of very different lengths are decoded, so that the number of rows of a step keeps "
        "changing: how much do graphs for each number gain, and graphs for a few numbers with padding?",
    .axes = {{"requests", {192}}},
    .variants =
        {
            {.id         = "launched",
             .start      = starts(CudaGraphMode::none, false),
             .techniques = {"batching", "continuous_batching"},
             .idea       = "no graphs, no padding: the host launches every kernel"},
            {.id         = "each_number",
             .start      = starts(CudaGraphMode::full, false),
             .techniques = {"batching", "continuous_batching", "graph_replay", "graph_capture",
                            "graph_bucketing"},
             .idea       = "a graph for each number of rows, captured when it first occurs",
             .prediction = predict::ratio(1.1)},
            {.id         = "buckets",
             .start      = starts(CudaGraphMode::full, true),
             .techniques = {"batching", "continuous_batching", "graph_replay", "graph_capture",
                            "graph_bucketing"},
             .idea = "rows padded to 1, 2, 4, 8, then to within a quarter; captured before the first request",
             .prediction = predict::ratio(1.5)},
        },
    .backend = Backend::cuda,
    .catalog = {"graphs-004", "graphs-013"},
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::graph_bucketing
