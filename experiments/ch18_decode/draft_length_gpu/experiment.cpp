// Every drafted token is a row more in the step that verifies it. What does a row cost on a GPU, where a step
// reads the weights of all experts that its rows hit, and what is left of an accept rate of 0.8?
#include <fmt/format.h>

#include <map>
#include <memory>
#include <stdexcept>
#include <utility>

#include "core/expect.h"
#include "engine/model_runner.h"
#include "engine/resolve_config.h"
#include "experiments/decoding_session.h"
#include "experiments/scripted_drafts.h"
#include "lab/experiment.h"
#include "lab/session.h"

namespace fathom::lab::draft_length_gpu {

using namespace decoding_session;
using scripted_drafts::Script;
using scripted_drafts::ScriptedProposer;

constexpr int64_t kLayers = 24, kPrompt = 1032, kTokens = 160, kMostSequences = 8, kLongest = 7;
constexpr int64_t kMoreRecorded = 32;  // tokens that a recorded answer has beyond the window

Decoding decoding(int64_t sequences, uint64_t seed) {
  return {.sequences = sequences, .prompt_tokens = kPrompt, .tokens = kTokens, .seed = seed};
}

// Two engines, with drafts and without, live as long as the process: starting one takes seconds.
struct Drafting {
  ScriptedProposer proposer;
  std::unique_ptr<engine::Engine> engine;
};

engine::EngineConfig config_of(bool drafts) {
  engine::EngineConfig config = shaped_engine(
      {.sequences = kMostSequences, .prompt_tokens = kPrompt, .tokens = kTokens + kMoreRecorded});
  if (drafts) {
    config.draft_tokens    = kLongest;
    config.draft_sequences = kMostSequences;
    config.draft_method    = engine::EngineConfig::DraftMethod::suffix;  // the script takes its place
  }
  return config;
}

Drafting& drafting(bool drafts) {
  static auto& alive = *new std::map<bool, Drafting>;  // not destroyed: CUDA may be, before it
  Drafting& one      = alive[drafts];
  if (one.engine) return one;
  const model::Checkpoint& model = shaped_model(kLayers);
  const auto config              = engine::resolve_config(model, config_of(drafts));
  if (!config) throw std::runtime_error(config.error().message);
  auto started = engine::Engine::start(model, *config, [&](const auto& pages) {
    auto runner = engine::make_gpu_runner(model, *config, pages);
    return drafts ? scripted_drafts::runner_with(one.proposer, std::move(runner)) : std::move(runner);
  });
  if (!started) throw std::runtime_error(started.error().message);
  one.engine = std::move(started).value();
  return one;
}

class Replayed final : public Session {
 public:
  Replayed(bool drafts, int64_t length, double accept, int64_t sequences)
      : with_(drafting(drafts)), length_(length), accept_(accept), sequences_(sequences) {}

  // The answer is recorded with as many rows in every step as the replay will have, all drafts wrong: kernels
  // add in an order that depends on the number of rows, and logits of random weights are often close.
  void prepare(uint64_t seed) override {
    asked_          = decoding(sequences_, seed);
    Decoding longer = asked_;
    longer.tokens += kMoreRecorded;
    const int64_t vocab = with_.engine->checkpoint().config.vocab_size;
    script_             = {.length = length_, .seed = seed, .vocab = vocab};
    with_.proposer.play(script_);
    recorded_    = decode(*with_.engine, longer).answers;
    auto prompts = prompts_of(asked_, vocab);
    for (size_t b = 0; b < prompts.size(); ++b) script_.answers[std::move(prompts[b])] = recorded_[b];
    script_.accept = accept_;
    with_.proposer.play(script_);
  }

  // An output is the place where an answer departs from the record, -1: nowhere.
  Replay replay() override {
    const engine::GeneratorStats before = with_.engine->stats();
    const Decoded seen                  = decode(*with_.engine, asked_);
    const engine::GeneratorStats after  = with_.engine->stats();
    Replay replay{.metrics = metrics_of(seen, sequences_)};
    for (size_t b = 0; b < seen.answers.size(); ++b) {
      const auto& answer = seen.answers[b];
      FATHOM_EXPECT(answer.size() <= recorded_[b].size(), "the record is too short");
      const auto apart = std::mismatch(answer.begin(), answer.end(), recorded_[b].begin()).first;
      replay.outputs.push_back({apart == answer.end() ? -1 : apart - answer.begin()});
    }
    const auto drafted = static_cast<double>(after.drafted_tokens - before.drafted_tokens);
    if (drafted > 0)
      replay.metrics["accept_rate"] = {
          static_cast<double>(after.accepted_tokens - before.accepted_tokens) / drafted, "higher"};
    replay.metrics["drafter_share"] = {with_.proposer.seconds() / seen.seconds, "lower"};
    return replay;
  }

 private:
  Drafting& with_;
  const int64_t length_;
  const double accept_;
  const int64_t sequences_;
  Decoding asked_;
  Script script_;
  std::vector<std::vector<model::TokenId>> recorded_;
};

auto starts(bool drafts, int64_t length, double accept) {
  return [=](const Point& at) -> std::unique_ptr<Session> {
    return std::make_unique<Replayed>(drafts, length, accept, at["sequences"]);
  };
}

const Experiment<Session> experiment{
    .question =
        "gpt-oss-20b's shape on one GPU, one sequence and eight: what do drafts of 1, 3 and 7 tokens save, "
        "of "
        "which "
        "each is right with a probability of 0.8 or 0.5, and what does it cost to plan each step only after "
        "the "
        "one before?",
    .axes = {{"sequences", {1, 8}}},
    .variants =
        {
            {.id         = "token_by_token",
             .start      = starts(false, 0, 0),
             .techniques = {"graph_replay", "latency_hiding"},
             .idea = "one token of each sequence a step; the next step is launched during the one before"},
            {.id         = "planned_after",
             .start      = starts(true, 0, 0),
             .techniques = {"graph_replay"},
             .idea       = "the same, but a step is planned when the tokens of the one before are known, as "
                           "drafts need it",
             .prediction = predict::ratio(0.95)},
            {.id         = "draft_1",
             .start      = starts(true, 1, 0.8),
             .techniques = {"graph_replay", "speculative_decoding"},
             .idea       = "drafts of one token, right with 0.8",
             .prediction = predict::ratio(1.4)},
            {.id         = "draft_3",
             .start      = starts(true, 3, 0.8),
             .techniques = {"graph_replay", "speculative_decoding"},
             .idea       = "three tokens, each right with 0.8 if those before it are",
             .prediction = predict::ratio_at_least(1.5)},
            {.id         = "draft_7",
             .start      = starts(true, 7, 0.8),
             .techniques = {"graph_replay", "speculative_decoding"},
             .idea       = "seven tokens",
             .prediction = predict::ratio(1.75)},
            {.id         = "draft_3_poor",
             .start      = starts(true, 3, 0.5),
             .techniques = {"graph_replay", "speculative_decoding"},
             .idea       = "three tokens, each right with 0.5",
             .prediction = predict::ratio(1.1)},
        },
    .backend = Backend::cuda,
    .catalog = {"specdec-001", "specdec-004", "lab-020"},
    .goal    = "token_ns",
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::draft_length_gpu
