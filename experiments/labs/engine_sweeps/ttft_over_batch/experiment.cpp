// How does the time to the first token grow with the number of requests that arrive together?
#include "experiments/engine_session.h"
#include "experiments/labs/engine_sweeps/engines.h"

namespace fathom::lab::ttft_over_batch {

using namespace engine_session;

constexpr int64_t kBatches = 6;  // of a replay, one after the other

engine::EngineConfig full() {
  engine::EngineConfig config;
  config.max_context   = 256;
  config.max_sequences = 16;
  config.kv_tokens     = 16 * 256;
  return config;
}

// Prompts of at most 16 tokens, as the sweep of the plan has them: the ends of those of tasks.
Workload batches_of(int64_t batch) {
  return [=](uint64_t seed) {
    std::vector<Asked> asked;
    for (int64_t phase = 0; phase < kBatches; ++phase)
      for (int64_t i = 0; i < batch; ++i) {
        std::vector<model::TokenId> prompt =
            prompt_of({.seed = seed, .index = static_cast<uint64_t>(phase * batch + i)});
        prompt.erase(prompt.begin(),
                     prompt.end() - std::min<int64_t>(std::ssize(prompt), 2 + (7 * i + 5) % 15));
        asked.push_back({.prompt = std::move(prompt), .max_tokens = 24, .exactly = true, .phase = phase});
      }
    return asked;
  };
}

auto starts(const engine::EngineConfig& config) {
  return [=](const Point& at) { return replay_on(engine_of(config), batches_of(at["batch"])); };
}

const Experiment<Session> experiment{
    .question =
        "Batches of 2 to 16 prompts of 2 to 16 tokens: how long does the first token take with static "
        "batches of "
        "eight, with continuous batching, and with drafts too?",
    .axes = {{"batch", {16, 2, 4, 8}}},
    .variants =
        {
            {.id         = "baseline",
             .start      = starts(full().plain()),
             .techniques = {"batching"},
             .idea       = "static batches of at most eight, a whole context of KV cache for each request"},
            {.id         = "engine",
             .start      = starts(full()),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "chunked_prefill",
                            "latency_hiding"},
             .idea       = "all features but drafts",
             .prediction = predict::ratio(2)},
            {.id         = "engine_drafts",
             .start      = starts(engine_sweeps::with_drafts(full())),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "chunked_prefill",
                            "latency_hiding", "speculative_decoding", "suffix_decoding", "draft_budget"},
             .idea       = "and drafts of chosen length",
             .prediction = predict::ratio(2)},
        },
    .catalog = {"analysis-006", "serving-016"},
    .goal    = "ttft_p50_ns",
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::ttft_over_batch
