// Attention depends on how long the sequences are, the rest of a step only on how many there are. One graph
// for both, or graphs for the pieces between two attentions?
#include <cmath>

#include "experiments/engine_session.h"

namespace fathom::lab::piece_graphs {

using namespace engine_session;
using Graphs = engine::EngineConfig::Graphs;

constexpr int64_t kContext = 4096, kLongest = 3000;

// Answers of 94 to 3000 tokens, half of them below 530: sequences become fewer and longer, and pass one reach
// of attention after another.
Workload fewer_and_longer(int64_t sequences) {
  return [=](uint64_t seed) {
    std::vector<Asked> asked = short_answers(sequences)(seed);
    for (size_t i = 0; i < asked.size(); ++i) {
      const double doublings = 5.0 * static_cast<double>(i) / static_cast<double>(asked.size() - 1);
      asked[i].max_tokens    = std::lround(kLongest * std::exp2(-doublings));
      asked[i].exactly       = true;
    }
    return asked;
  };
}

auto starts(Graphs graphs) {
  return [=](const Point& at) {
    engine::EngineConfig config = on_gpu();
    config.max_context          = kContext;
    config.max_sequences        = at["sequences"];
    config.kv_tokens            = at["sequences"] * kContext;
    config.graphs               = graphs;
    return replay_on(engine_of(config), fewer_and_longer(at["sequences"]), count_graphs);
  };
}

const SessionExperiment experiment{
    .question =
        "16 sequences become fewer and longer: what does it cost to capture whole steps, for each number of "
        "rows and each reach of attention, and what to replay pieces that depend on the rows alone?",
    .axes = {{"sequences", {16}}},
    .variants =
        {
            {.id         = "whole",
             .start      = starts(Graphs::whole),
             .techniques = {"graph_replay", "graph_capture"},
             .idea       = "a graph of the step; one for a new reach is captured when it comes"},
            {.id         = "pieces",
             .start      = starts(Graphs::pieces),
             .techniques = {"graph_replay", "graph_capture", "regional_graphs"},
             .idea       = "graphs of what lies between two attentions, which are launched",
             .prediction = predict::ratio(0.8)},
        },
    .catalog = {"usecase-017"},
    .backend = Backend::cuda,
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::piece_graphs
