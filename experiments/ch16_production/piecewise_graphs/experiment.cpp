// Attention depends on the lengths of the sequences, the rest of a step only on their number. Is one graph of
// the whole step faster, or a graph for each piece between two attention kernels?
#include <cmath>

#include "experiments/engine_session.h"

namespace fathom::lab::piecewise_graphs {

using namespace engine_session;
using CudaGraphMode = engine::EngineConfig::CudaGraphMode;

constexpr int64_t kContext = 4096, kMaxAnswer = 3000;

// Answers of 94 to 3000 tokens, half of them below 530: sequences become fewer and longer, and attention's
// reach grows.
Workload fewer_and_longer(int64_t sequences) {
  return [=](uint64_t seed) {
    std::vector<Asked> asked = short_answers(sequences)(seed);
    for (size_t i = 0; i < asked.size(); ++i) {
      const double doublings = 5.0 * static_cast<double>(i) / static_cast<double>(asked.size() - 1);
      asked[i].max_tokens    = std::lround(kMaxAnswer * std::exp2(-doublings));
      asked[i].exactly       = true;
    }
    return asked;
  };
}

auto starts(CudaGraphMode graphs) {
  return [=](const Point& at) {
    engine::EngineConfig config = on_gpu();
    config.max_context          = kContext;
    config.max_sequences        = at["sequences"];
    config.kv_tokens            = at["sequences"] * kContext;
    config.cudagraph_mode       = graphs;
    return replay_on(engine_of(config), fewer_and_longer(at["sequences"]), count_graphs);
  };
}

const Experiment<Session> experiment{
    .question =
        "16 sequences become fewer and longer: is it faster to capture whole steps, for each number of rows "
        "and each reach of attention, or pieces that depend on the number of rows only?",
    .axes = {{"sequences", {16}}},
    .variants =
        {
            {.id         = "whole",
             .start      = starts(CudaGraphMode::full),
             .techniques = {"graph_replay", "graph_capture"},
             .idea       = "a graph of the whole step, captured when a new reach is first needed"},
            {.id         = "pieces",
             .start      = starts(CudaGraphMode::piecewise),
             .techniques = {"graph_replay", "graph_capture", "regional_graphs"},
             .idea       = "graphs of the pieces between attention kernels, which are launched",
             .prediction = predict::ratio(0.8)},
        },
    .backend = Backend::cuda,
    .catalog = {"usecase-017"},
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::piecewise_graphs
