// A static batch takes as long as its longest answer. How much does it gain when a finished request makes
// room at once?
#include "experiments/engine_session.h"

namespace fathom::lab::continuous_batching {

using namespace engine_session;

// Tokens of a sequence at most, and sequences of the widest variant: memory holds so many whole contexts, so
// that it never runs out.
constexpr int64_t kContext = 512, kMaxSequences = 32;

engine::EngineConfig sized(engine::EngineConfig config) {
  config.max_context = kContext;
  config.kv_tokens   = kMaxSequences * kContext;
  return config;
}

engine::EngineConfig continuous(int64_t max_sequences) {
  auto config                = sized(engine::EngineConfig::baseline());
  config.continuous_batching = true;
  config.max_sequences       = max_sequences;
  return config;
}

auto starts(const engine::EngineConfig& config) {
  return [config](const Point& at) {
    return replay_on(engine_of(config), answers_of_many_lengths(at["requests"]));
  };
}

const Experiment<Session> experiment{
    .question =
        "Requests with answers of very different lengths wait: what do they gain when they join and leave "
        "the "
        "batch at every step, and not in batches of 8?",
    .axes  = {{"requests", {48}}},
    .quick = {{"requests", {16}}},
    .variants =
        {
            {.id         = "static_8",
             .start      = starts(sized(engine::EngineConfig::baseline())),
             .techniques = {"batching"},
             .idea       = "eight requests at a time; the next eight when the last has finished"},
            {.id         = "continuous_8",
             .start      = starts(continuous(8)),
             .techniques = {"batching", "continuous_batching"},
             .idea       = "at most eight requests; a finished one makes room at once",
             .prediction = predict::ratio(1.25)},
            {.id         = "continuous_32",
             .start      = starts(continuous(kMaxSequences)),
             .techniques = {"batching", "continuous_batching"},
             .idea       = "at most 32 requests",
             .prediction = predict::ratio(1.45)},
        },
    .catalog = {"serving-001", "serving-004", "serving-015", "serving-018", "report-008"},
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::continuous_batching
