// A batch is as slow as its longest answer. What is gained when whoever is finished makes room at once?
#include "experiments/engine_session.h"

namespace fathom::lab::continuous_batching {

using namespace engine_session;

// No more tokens than this in a sequence; memory for the places of the widest variant, so that it never runs
// out.
constexpr int64_t kContext = 512, kPlaces = 32;

engine::EngineConfig sized(engine::EngineConfig config) {
  config.max_context = kContext;
  config.kv_tokens   = kPlaces * kContext;
  return config;
}

engine::EngineConfig continuous(int64_t places) {
  auto config                = sized(engine::EngineConfig::baseline());
  config.continuous_batching = true;
  config.max_sequences       = places;
  return config;
}

auto starts(const engine::EngineConfig& config) {
  return [config](const Point& at) {
    return replay_on(engine_of(config), answers_of_many_lengths(at["requests"]));
  };
}

const SessionExperiment experiment{
    .question =
        "Requests of very different lengths wait to be answered: what do they gain when they join and "
        "leave at every step, and not in batches of 8?",
    .axes = {{"requests", {48}}},
    .variants =
        {
            {.id         = "static_8",
             .start      = starts(sized(engine::EngineConfig::baseline())),
             .techniques = {"batching"},
             .idea       = "eight at a time; the next eight when the last of them has ended"},
            {.id         = "continuous_8",
             .start      = starts(continuous(8)),
             .techniques = {"batching", "continuous_batching"},
             .idea       = "eight places; who has ended makes room",
             .prediction = predict::ratio(1.25)},
            {.id         = "continuous_32",
             .start      = starts(continuous(kPlaces)),
             .techniques = {"batching", "continuous_batching"},
             .idea       = "32 places",
             .prediction = predict::ratio(1.45)},
        },
    .catalog = {"serving-001", "serving-004", "serving-015", "serving-018", "report-008"},
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::continuous_batching
