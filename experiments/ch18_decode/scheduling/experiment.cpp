// Questions arrive at random, four in five of what static batches can serve. What do requests wait for when
// one is served after the other, or in batches; and what do paged memory, continuous batching, chunks of
// prompts and drafts leave of the waiting?
#include <algorithm>

#include "experiments/engine_session.h"

namespace fathom::lab::scheduling {

using namespace engine_session;

engine::EngineConfig all_features(bool drafts) {
  engine::EngineConfig config;
  config.max_context   = 512;
  config.max_sequences = 16;
  config.kv_tokens     = 8 * 512;
  config.step_tokens   = 128;
  if (drafts) {
    config.draft_tokens = 7;
    config.draft_method = engine::EngineConfig::DraftMethod::suffix;
    config.draft_budget = true;
  }
  return config;
}

engine::EngineConfig static_batches(int64_t size) {
  engine::EngineConfig config = all_features(false).plain();
  config.static_batch         = size;
  return config;
}

// Every second question follows eight solved ones, the same for all.
Workload questions(int64_t count) {
  return [=](uint64_t seed) {
    std::vector<Asked> asked;
    for (int64_t i = 0; i < count; ++i)
      asked.push_back(
          {.prompt = prompt_of(
               {.seed = seed, .index = static_cast<uint64_t>(i), .shots = i % 2 == 0 ? 8 : 0, .about = 7}),
           .max_tokens = 128});
    return asked;
  };
}

Workload arriving(double load) {
  static const double saturated = saturation_rps(engine_of(static_batches(8)), questions(24));
  return in_open_loop(questions(48), load * saturated);
}

void more(const Seen& seen, Metrics& metrics) {
  const engine::GeneratorStats& s = seen.stats;
  double waited = 0, most = 0;
  for (const load::RequestRecord& request : seen.requests) {
    if (!request.content_s.empty()) waited += request.content_s.front() - request.sent_s;
    most = std::max(most, request.ended_s);
  }
  metrics["mean_queue_depth"]      = {waited / most, "lower"};  // requests without a token
  metrics["most_requests_at_once"] = {static_cast<double>(seen.peak_running), "higher"};
  const auto share                 = [&](const char* name, int64_t part, int64_t whole) {
    if (whole > 0) metrics[name] = {static_cast<double>(part) / static_cast<double>(whole), "higher"};
  };
  share("page_hit_rate", s.prefix_hit_tokens, s.prefix_queried_tokens);
  share("accept_rate", s.accepted_tokens, s.drafted_tokens);
}

auto starts(const engine::EngineConfig& config) {
  return [=](const Point& at) { return replay_on(engine_of(config), arriving(at.real("load")), more); };
}

const Experiment<Session> experiment{
    .question =
        "Questions arrive at random, at 0.8 of what static batches can serve: how long does an answer take "
        "with one request at a time, in batches, and with the features of a serving engine?",
    .axes = {{"load", {0.8}}},
    .variants =
        {
            {.id         = "static_batches",
             .start      = starts(static_batches(8)),
             .techniques = {"batching"},
             .idea       = "up to eight requests start together, and the next ones when all have ended"},
            {.id         = "single_stream",
             .start      = starts(static_batches(1)),
             .techniques = {},
             .idea       = "one request after the other",
             .prediction = predict::ratio(0.5)},
            {.id         = "paged_chunks",
             .start      = starts(all_features(false)),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "chunked_prefill",
                            "latency_hiding"},
             .idea       = "requests join at every step, pages on demand, prompts in chunks beside decodes",
             .prediction = predict::ratio_at_least(2)},
            {.id         = "paged_chunks_drafts",
             .start      = starts(all_features(true)),
             .techniques = {"continuous_batching", "paged_kv", "prefix_caching", "chunked_prefill",
                            "latency_hiding", "speculative_decoding", "suffix_decoding", "draft_budget"},
             .idea       = "and drafts of chosen length",
             .prediction = predict::ratio_at_least(2)},
        },
    .catalog = {"usecase-020", "serving-016"},
    .goal    = "e2e_p50_ns",
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::scheduling
