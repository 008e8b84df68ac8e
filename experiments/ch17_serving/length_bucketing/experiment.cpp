// In a static batch the short answers wait for the longest. How much of the batch is idle, and how much of
// that does sorting by length save?
#include "experiments/engine_session.h"

namespace fathom::lab::length_bucketing {

using namespace engine_session;

constexpr int64_t kMaxSequences = 8;

engine::EngineConfig batches() {
  auto config          = engine::EngineConfig::baseline();
  config.static_batch  = kMaxSequences;
  config.max_sequences = kMaxSequences;
  config.max_context   = 512;
  config.kv_tokens     = kMaxSequences * 512;
  return config;
}

engine::EngineConfig continuous() {
  auto config                = batches();
  config.continuous_batching = true;
  return config;
}

// Lengths are known in advance here; a server has to guess them.
Workload workload(int64_t count, bool by_length) {
  return [=](uint64_t seed) {
    std::vector<Asked> asked = answers_of_many_lengths(count)(seed);
    if (by_length)
      for (Asked& request : asked) request.bucket = request.max_tokens;
    return asked;
  };
}

auto starts(const engine::EngineConfig& config, bool by_length) {
  return [=](const Point& at) {
    return replay_on(
        engine_of(config), workload(at["requests"], by_length), [](const Seen& seen, Metrics& metrics) {
          // A sequence slot generates one token a step, or is idle.
          metrics["padding_waste"] = {1 - static_cast<double>(seen.stats.generated_tokens) /
                                              static_cast<double>(kMaxSequences * seen.stats.steps),
                                      "lower"};
        });
  };
}

const Experiment<Session> experiment{
    .question =
        "Answers of 8 to 256 tokens are generated in batches of 8: how many slots are idle, how many when "
        "batches are sorted by length, and is continuous batching better?",
    .axes  = {{"requests", {48}}},
    .quick = {{"requests", {16}}},
    .variants =
        {
            {.id         = "as_they_come",
             .start      = starts(batches(), false),
             .techniques = {"batching"},
             .idea       = "batches in order of arrival"},
            {.id         = "by_length",
             .start      = starts(batches(), true),
             .techniques = {"batching", "length_bucketing"},
             .idea       = "batches of answers of similar length",
             .prediction = predict::ratio(1.3)},
            {.id         = "continuous",
             .start      = starts(continuous(), false),
             .techniques = {"batching", "continuous_batching"},
             .idea       = "no static batches: a finished request makes room at once",
             .prediction = predict::ratio(1.3)},
        },
    .catalog = {"serving-008", "serving-009"},
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::length_bucketing
