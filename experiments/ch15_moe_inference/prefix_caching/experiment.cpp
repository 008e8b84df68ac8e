// Prompts that begin alike have the same keys and values there. How much sooner is the first token if these
// are computed once?
#include "experiments/engine_session.h"

namespace fathom::lab::prefix_caching {

using namespace engine_session;

constexpr int64_t kRequests = 24;
constexpr uint64_t kAbouts  = 4;  // different beginnings

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

// Each behind one of four lists of examples, in turn; as it comes in an open loop, at half of what
// `recomputing` could take.
Workload workload(int64_t shots) {
  const Workload questions = [=](uint64_t seed) {
    std::vector<Asked> asked;
    for (uint64_t i = 0; i < kRequests; ++i)
      asked.push_back(
          {.prompt     = prompt_of({.seed = seed, .index = i, .shots = shots, .about = seed + i % kAbouts}),
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

const SessionExperiment experiment{
    .question =
        "Prompts begin with one of four lists of examples: how much sooner is the first token when a list "
        "is computed once?",
    .axes = {{"shots", {8}}},
    .variants =
        {
            {.id         = "recomputing",
             .start      = starts(recomputing()),
             .techniques = {"continuous_batching", "paged_kv"},
             .idea       = "every prompt from its first token"},
            {.id         = "sharing",
             .start      = starts(sharing()),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching"},
             .idea       = "blocks of 16 tokens found by a hash of all up to their end",
             .prediction = predict::ratio_at_least(4)},
        },
    .catalog = {"kv-001"},
    .goal    = "ttft_p50_ns",
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::prefix_caching
