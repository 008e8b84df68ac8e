// A step for one token costs nearly as much as a step for a few. If drafts come from the sequence's own text,
// how many tokens can a step generate?
#include "core/expect.h"
#include "experiments/engine_session.h"

namespace fathom::lab::ngram_speculation {

using namespace engine_session;

engine::EngineConfig drafts_of(int64_t tokens) {
  engine::EngineConfig config;
  config.max_context   = 512;
  config.max_sequences = 1;
  config.kv_tokens     = 1024;
  config.draft_tokens  = tokens;
  return config;
}

// "run_on": answers of 192 tokens; the model's end token is ignored, and it then repeats itself.
// "answers": lists and words are reversed; some of an answer's tokens stand in the question.
Workload workload(const std::string& kind) {
  FATHOM_EXPECT(kind == "run_on" || kind == "answers", "text is run_on or answers");
  const bool run_on = kind == "run_on";
  return [=](uint64_t seed) {
    std::vector<Asked> asked;
    for (uint64_t i = 0; i < (run_on ? 6u : 16u); ++i)
      asked.push_back({.prompt     = prompt_of({.seed = seed, .index = i, .task = "reversing"}),
                       .max_tokens = 192,
                       .exactly    = run_on});
    return asked;
  };
}

auto starts(int64_t draft_tokens) {
  return [=](const Point& at) {
    return replay_on(
        engine_of(drafts_of(draft_tokens)), workload(at.text("text")),
        [](const Seen& seen, Metrics& metrics) {
          const auto share = [](int64_t part, int64_t whole) {
            return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
          };
          const engine::GeneratorStats& s = seen.stats;
          metrics["accept_rate"]          = {share(s.accepted_tokens, s.drafted_tokens), "higher"};
          metrics["tokens_per_step"]      = {share(s.generated_tokens, s.steps), "higher"};
          metrics["wasted_rows"] = {share(s.drafted_tokens - s.accepted_tokens, s.step_rows), "lower"};
        });
  };
}

const Experiment<Session> experiment{
    .question =
        "One request at a time, with drafts from its own earlier text: how many are accepted, how many "
        "tokens "
        "does a step generate, and how much time does that save?",
    .axes = {{"text", {"run_on", "answers"}}},
    .variants =
        {
            {.id         = "token_by_token",
             .start      = starts(0),
             .techniques = {"latency_hiding"},
             .idea       = "one token a step; the next step is planned meanwhile"},
            {.id         = "drafts_2",
             .start      = starts(2),
             .techniques = {"speculative_decoding"},
             .idea =
                 "drafts of at most two tokens that followed the same n-gram before, verified in one step",
             .prediction = predict::ratio(1.3)},
            {.id         = "drafts_4",
             .start      = starts(4),
             .techniques = {"speculative_decoding"},
             .idea       = "drafts of at most four tokens",
             .prediction = predict::ratio(1.4)},
            {.id         = "drafts_8",
             .start      = starts(8),
             .techniques = {"speculative_decoding"},
             .idea       = "drafts of at most eight tokens",
             .prediction = predict::ratio(1.4)},
        },
    .catalog = {"specdec-001", "specdec-005"},
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::ngram_speculation
