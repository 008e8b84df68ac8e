// A chain of drafts ends at its first wrong token. A tree of as many tokens has second choices there, and is
// shorter. How many more tokens does a step yield, and what is left of that on a CPU, where rows cost time?
#include "experiments/engine_session.h"
#include "tree_decoder.h"

namespace fathom::lab::tree_verification {
namespace {

class Decoding final : public Session {
 public:
  Decoding(const Shape& shape, int64_t requests)
      : decoder_(engine_session::bundled().checkpoint, shape), requests_(requests) {}

  void prepare(uint64_t seed) override {
    prompts_.clear();
    for (uint64_t i = 0; i < static_cast<uint64_t>(requests_); ++i)
      prompts_.push_back(engine_session::prompt_of({.seed = seed, .index = i}));
  }
  Replay replay() override {
    Replay replay;
    for (const auto& prompt : prompts_) replay.outputs.push_back(decoder_.decode(prompt, 96));
    const TreeDecoder::Counts& n = decoder_.counts();
    const auto per_step          = [&](int64_t count) {
      return n.steps > 0 ? static_cast<double>(count) / static_cast<double>(n.steps) : 0;
    };
    replay.metrics["tokens_per_step"]   = {per_step(n.tokens), "higher"};
    replay.metrics["rows_per_step"]     = {per_step(n.rows), "lower"};
    replay.metrics["drafted_per_step"]  = {per_step(n.drafted), "lower"};
    replay.metrics["accepted_per_step"] = {per_step(n.accepted), "higher"};
    return replay;
  }

 private:
  TreeDecoder decoder_;
  const int64_t requests_;
  std::vector<std::vector<model::TokenId>> prompts_;
};

auto starts(const Shape& shape) {
  return [=](const Point& at) -> std::unique_ptr<Session> {
    return std::make_unique<Decoding>(shape, at["requests"]);
  };
}

const Experiment<Session> experiment{
    .question =
        "Drafts of the bundled drafter as chains of 8 and 16 tokens and as trees of as many: how many tokens "
        "does a "
        "step yield, and how long does a token take?",
    .axes  = {{"requests", {16}}},
    .quick = {{"requests", {3}}},
    .variants =
        {
            {.id = "token_by_token", .start = starts({}), .techniques = {"paged_kv"}, .idea = "no drafts"},
            {.id         = "chain_8",
             .start      = starts({.nodes = 8, .depth = 8, .width = 1}),
             .techniques = {"paged_kv", "speculative_decoding"},
             .idea       = "the likeliest token, and the likeliest after it: eight",
             .prediction = predict::ratio(0.45)},
            {.id         = "tree_8",
             .start      = starts({.nodes = 8, .depth = 5, .width = 4}),
             .techniques = {"paged_kv", "speculative_decoding", "multi_draft"},
             .idea       = "the eight tokens of the likeliest paths, up to four after one",
             .prediction = predict::ratio(0.55)},
            {.id         = "chain_16",
             .start      = starts({.nodes = 16, .depth = 16, .width = 1}),
             .techniques = {"paged_kv", "speculative_decoding"},
             .idea       = "a chain of sixteen",
             .prediction = predict::ratio(0.25)},
            {.id         = "tree_16",
             .start      = starts({.nodes = 16, .depth = 7, .width = 6}),
             .techniques = {"paged_kv", "speculative_decoding", "multi_draft"},
             .idea       = "the sixteen tokens of the likeliest paths, up to six after one",
             .prediction = predict::ratio(0.35)},
        },
    .catalog = {"specdec-002"},
};
FATHOM_REGISTER(experiment);

}  // namespace
}  // namespace fathom::lab::tree_verification
