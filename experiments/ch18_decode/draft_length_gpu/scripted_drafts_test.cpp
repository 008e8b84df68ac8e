// The scripted drafter has the rate of acceptance that it is asked for, and changes no answer.
#include "experiments/scripted_drafts.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/engine.h"
#include "experiments/decoding_session.h"
#include "experiments/engine_session.h"

namespace fathom::lab::scripted_drafts {
namespace {

using decoding_session::Decoded;
using decoding_session::Decoding;
using engine_session::bundled;

struct Engines {
  ScriptedProposer proposer;
  std::unique_ptr<engine::Engine> plain, drafting;

  Engines() {
    engine::EngineConfig config;
    config.max_sequences = 4;
    config.max_context   = 320;
    config.kv_tokens     = 4 * 336;
    config.prefix_cache  = false;
    plain                = engine::Engine::start(bundled().checkpoint, config).value();
    config.draft_tokens  = 7;
    config.draft_method  = engine::EngineConfig::DraftMethod::suffix;
    drafting             = engine::Engine::start(bundled().checkpoint, config, [&](const auto& pages) {
                 return runner_with(proposer, engine::make_cpu_runner(bundled().checkpoint, config, pages));
               }).value();
  }
};

TEST(ScriptedDrafts, HaveTheirRateAndChangeNoAnswer) {
  Engines engines;
  const Decoding asked{.sequences = 4, .prompt_tokens = 20, .tokens = 200, .seed = 5};
  Decoding longer = asked;
  longer.tokens += 32;
  const int64_t vocab    = bundled().checkpoint.config.vocab_size;
  const Decoded recorded = decode(*engines.plain, longer);
  EXPECT_EQ(recorded.steps, longer.tokens - 1);
  EXPECT_EQ(recorded.tokens, 4 * recorded.steps);

  for (const double accept : {0.0, 0.5, 0.8, 1.0})
    for (const int64_t length : {0, 1, 3, 7}) {
      Script script{.length = length, .accept = accept, .seed = 9, .vocab = vocab};
      const auto prompts = prompts_of(asked, vocab);
      for (size_t b = 0; b < prompts.size(); ++b) script.answers[prompts[b]] = recorded.answers[b];
      engines.proposer.play(script);
      const Decoded seen = decode(*engines.drafting, asked);
      double expected = 1, survival = 1;  // tokens of a step
      for (int64_t k = 0; k < length; ++k) expected += survival *= accept;
      for (size_t b = 0; b < prompts.size(); ++b) {
        const auto& answer = seen.answers[b];
        ASSERT_LE(answer.size(), recorded.answers[b].size());
        EXPECT_TRUE(std::equal(answer.begin(), answer.end(), recorded.answers[b].begin()))
            << accept << length;
      }
      const double tokens = static_cast<double>(seen.tokens) / static_cast<double>(4 * seen.steps);
      // Exact where nothing is left to chance.
      const double within = accept == 0 || accept == 1 ? 1e-9 : 0.1 * expected;
      EXPECT_NEAR(tokens, expected, within) << accept << ' ' << length;
    }
}

// Without a record its drafts are wrong, or as good as always.
TEST(ScriptedDrafts, WithoutARecordAreWrong) {
  Engines engines;
  engines.proposer.play({.length = 3, .vocab = bundled().checkpoint.config.vocab_size});
  const Decoding asked{.sequences = 1, .prompt_tokens = 20, .tokens = 100, .seed = 6};
  const Decoded seen = decode(*engines.drafting, asked);
  EXPECT_EQ(seen.answers[0], decode(*engines.plain, asked).answers[0]);
  EXPECT_GE(seen.steps, 90);
}

}  // namespace
}  // namespace fathom::lab::scripted_drafts
