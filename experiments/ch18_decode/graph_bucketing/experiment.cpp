// A graph is made for one number of rows, and the number of sequences changes at every step. A graph for each
// number, or a few and rows of padding?
#include "experiments/engine_session.h"

namespace fathom::lab::graph_bucketing {

using namespace engine_session;
using Graphs = engine::EngineConfig::Graphs;

auto starts(Graphs graphs, bool buckets) {
  return [=](const Point& at) {
    engine::EngineConfig config = on_gpu();
    config.graphs               = graphs;
    config.graph_buckets        = buckets;
    return replay_on(engine_of(config), answers_of_many_lengths(at["requests"]), count_graphs);
  };
}

const SessionExperiment experiment{
    .question =
        "Requests of very different lengths are decoded, so that the number of rows of a step keeps "
        "changing: what are graphs for each number worth, and graphs for few numbers with padding?",
    .axes = {{"requests", {192}}},
    .variants =
        {
            {.id         = "launched",
             .start      = starts(Graphs::none, false),
             .techniques = {"batching", "continuous_batching"},
             .idea       = "no graphs, no padding: every kernel is launched for the rows there are"},
            {.id         = "each_number",
             .start      = starts(Graphs::whole, false),
             .techniques = {"batching", "continuous_batching", "graph_replay", "graph_capture",
                            "graph_bucketing"},
             .idea       = "a graph for each number of rows, captured when it first comes",
             .prediction = predict::ratio(1.1)},
            {.id         = "buckets",
             .start      = starts(Graphs::whole, true),
             .techniques = {"batching", "continuous_batching", "graph_replay", "graph_capture",
                            "graph_bucketing"},
             .idea = "numbers rounded up to 1, 2, 4, 8, then within a quarter; captured before the first "
                     "request",
             .prediction = predict::ratio(1.5)},
        },
    .catalog = {"graphs-004", "graphs-013"},
    .backend = Backend::cuda,
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::graph_bucketing
