// How does the latency of a request grow with its context, where questions about one text follow each other?
#include "experiments/engine_session.h"
#include "experiments/labs/engine_sweeps/engines.h"

namespace fathom::lab::latency_over_context {

using namespace engine_session;

engine::EngineConfig full() {
  engine::EngineConfig config;
  config.max_context   = 2304;
  config.max_sequences = 8;
  config.kv_tokens     = 4 * 2304;
  return config;
}

// Two texts, and two questions about each, which all arrive together. A text is a list of solved cases, of
// about 27 tokens each.
Workload questions(int64_t context) {
  return [=](uint64_t seed) {
    std::vector<Asked> asked;
    for (uint64_t i = 0; i < 4; ++i)
      asked.push_back({.prompt = prompt_of(
                           {.seed = seed, .index = i, .shots = context / 27, .about = 1000 * seed + i % 2}),
                       .max_tokens = 16,
                       .exactly    = true});
    return asked;
  };
}

auto starts(const engine::EngineConfig& config) {
  return [=](const Point& at) {
    return replay_on(engine_of(config), questions(at["context"]), [](const Seen& seen, Metrics& metrics) {
      double tokens = 0;
      for (const Asked& one : seen.asked) tokens += static_cast<double>(one.prompt.size());
      metrics["prompt_tokens"] = {tokens / static_cast<double>(seen.asked.size()), "lower"};
    });
  };
}

const Experiment<Session> experiment{
    .question =
        "Two questions about each of two texts of about 128 to 1,536 tokens: how does the median latency "
        "grow with "
        "the context, without any feature and with prefix caching, chunked prefill and drafts?",
    .axes  = {{"context", {512, 128, 1536}}},
    .quick = {{"context", {128}}},
    .variants =
        {
            {.id         = "baseline",
             .start      = starts(full().plain()),
             .techniques = {"batching"},
             .idea       = "every prompt is computed whole; a whole context of KV cache for each request"},
            {.id         = "engine",
             .start      = starts(full()),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "chunked_prefill",
                            "latency_hiding"},
             .idea       = "all features but drafts",
             .prediction = predict::ratio(1.3)},
            {.id         = "engine_drafts",
             .start      = starts(engine_sweeps::with_drafts(full())),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "chunked_prefill",
                            "latency_hiding", "speculative_decoding", "suffix_decoding", "draft_budget"},
             .idea       = "and drafts of chosen length",
             .prediction = predict::ratio(1.3)},
        },
    .catalog = {"analysis-008", "serving-016"},
    .goal    = "e2e_p50_ns",
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::latency_over_context
