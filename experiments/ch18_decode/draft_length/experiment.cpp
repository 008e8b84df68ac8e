// Drafts of a fixed length cost time where they are wrong. Can measured costs and rates of acceptance choose
// the length of each draft, so that drafts save time where they can and cost nothing where they cannot?
#include "core/expect.h"
#include "experiments/engine_session.h"

namespace fathom::lab::draft_length {

using namespace engine_session;
using Method = engine::EngineConfig::DraftMethod;

engine::EngineConfig one_at_a_time() {
  engine::EngineConfig config;
  config.max_context   = 512;
  config.max_sequences = 1;
  config.kv_tokens     = 1024;
  return config;
}

engine::EngineConfig drafts(Method method, int64_t tokens, bool budget) {
  engine::EngineConfig config = one_at_a_time();
  config.draft_tokens         = tokens;
  config.draft_method         = method;
  config.draft_budget         = budget;
  return config;
}

// "run_on": answers of 192 tokens; the model's end token is ignored, and it then repeats itself. "answers":
// all tasks in turn; answers resemble each other in form.
Workload workload(const std::string& kind) {
  FATHOM_EXPECT(kind == "run_on" || kind == "answers", "text is run_on or answers");
  const bool run_on = kind == "run_on";
  return [=](uint64_t seed) {
    std::vector<Asked> asked;
    for (uint64_t i = 0; i < (run_on ? 6u : 32u); ++i)
      asked.push_back({.prompt     = prompt_of({.seed = seed, .index = i, .task = run_on ? "reversing" : ""}),
                       .max_tokens = 192,
                       .exactly    = run_on});
    return asked;
  };
}

auto starts(const engine::EngineConfig& config) {
  return [=](const Point& at) {
    return replay_on(engine_of(config), workload(at.text("text")), [](const Seen& seen, Metrics& metrics) {
      const auto share = [](int64_t part, int64_t whole) {
        return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
      };
      const engine::GeneratorStats& s = seen.stats;
      metrics["accept_rate"]          = {share(s.accepted_tokens, s.drafted_tokens), "higher"};
      metrics["tokens_per_step"]      = {share(s.generated_tokens, s.steps), "higher"};
      metrics["wasted_rows"]          = {share(s.drafted_tokens - s.accepted_tokens, s.step_rows), "lower"};
    });
  };
}

const Experiment<Session> experiment{
    .question =
        "One request at a time: what do drafts of fixed and of chosen length save, from n-grams of the "
        "sequence and from suffixes of it and of finished answers?",
    .axes = {{"text", {"run_on", "answers"}}},
    .variants =
        {
            {.id         = "token_by_token",
             .start      = starts(one_at_a_time()),
             .techniques = {"latency_hiding"},
             .idea       = "one token a step; the next step is planned meanwhile"},
            {.id         = "ngram_fixed",
             .start      = starts(drafts(Method::ngram, 7, false)),
             .techniques = {"speculative_decoding"},
             .idea = "at most seven tokens that followed the same n-gram before, fewer after a rejection",
             .prediction = predict::ratio(1.1)},
            {.id         = "ngram_budget",
             .start      = starts(drafts(Method::ngram, 7, true)),
             .techniques = {"speculative_decoding", "draft_budget"},
             .idea       = "as many of them as measured costs and rates of acceptance make worth a step",
             .prediction = predict::ratio(1.1)},
            {.id         = "suffix_fixed",
             .start      = starts(drafts(Method::suffix, 7, false)),
             .techniques = {"speculative_decoding", "suffix_decoding"},
             .idea =
                 "what followed the longest match in the sequence or mostly followed it in answers before",
             .prediction = predict::ratio(1.2)},
            {.id         = "suffix_budget",
             .start      = starts(drafts(Method::suffix, 7, true)),
             .techniques = {"speculative_decoding", "suffix_decoding", "draft_budget"},
             .idea       = "those, as many as are worth a step",
             .prediction = predict::ratio(1.25)},
        },
    .catalog = {"specdec-002", "specdec-005", "specdec-006"},
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::draft_length
