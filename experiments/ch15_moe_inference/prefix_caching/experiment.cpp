// Prompts with the same prefix have the same keys and values for it. How much sooner is the first token when
// these are computed once?
#include "experiments/engine_session.h"

namespace fathom::lab::prefix_caching {

using namespace engine_session;

constexpr int64_t kRequests  = 24;
constexpr uint64_t kPrefixes = 4;  // different ones

engine::EngineConfig recomputing() {
  auto config                = engine::EngineConfig::baseline();
  config.continuous_batching = config.paged_kv = true;
  config.max_context                           = 512;
  config.kv_tokens                             = 8192;
  return config;
}

engine::EngineConfig sharing() {
  auto config         = recomputing();
  config.prefix_cache = true;
  return config;
}

// Questions that follow one of four lists of examples, in turn. They arrive in an open loop, at half of the
// rate that `recomputing` can serve.
Workload workload(int64_t shots) {
  const Workload questions = [=](uint64_t seed) {
    std::vector<Asked> asked;
    for (uint64_t i = 0; i < kRequests; ++i)
      asked.push_back(
          {.prompt     = prompt_of({.seed = seed, .index = i, .shots = shots, .about = seed + i % kPrefixes}),
           .max_tokens = 32});
    return asked;
  };
  static const double rps = 0.5 * saturation_rps(engine_of(recomputing()), questions);
  return in_open_loop(questions, rps);
}

auto starts(const engine::EngineConfig& config) {
  return [config](const Point& at) {
    return replay_on(engine_of(config), workload(at["shots"]), [](const Seen& seen, Metrics& metrics) {
      metrics["hit_rate"] = {
          static_cast<double>(seen.stats.prefix_hit_tokens) / static_cast<double>(seen.stats.prompt_tokens),
          "higher"};
      metrics["prompt_tokens"] = {static_cast<double>(seen.stats.prompt_tokens), "lower"};
    });
  };
}

const Experiment<Session> experiment{
    .question =
        "Prompts begin with one of four lists of examples: how much sooner is the first token when a list "
        "is computed once?",
    .axes = {{"shots", {8}}},
    .variants =
        {
            {.id         = "recomputing",
             .start      = starts(recomputing()),
             .techniques = {"continuous_batching", "paged_kv"},
             .idea       = "every prompt is computed from its first token"},
            {.id         = "sharing",
             .start      = starts(sharing()),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching"},
             .idea       = "blocks of 16 tokens are found by a hash of all tokens up to their end",
             .prediction = predict::ratio_at_least(4)},
        },
    .catalog = {"kv-001"},
    .goal    = "ttft_p50_ns",
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::prefix_caching
