// The engine with a vocabulary that is large enough to be screened: the same tokens with the screen and
// without.
#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/engine.h"
#include "engine/resolve_config.h"
#include "model/checkpoint.h"
#include "model/synthetic_checkpoint.h"
#include "model/tiny_checkpoint.h"

namespace fathom::engine {
namespace {

using model::TokenId;

class ScreenedArgmax : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new model::TempFolder;
    ThreadPool pool(2);
    ASSERT_TRUE(
        model::make_synthetic_checkpoint({.vocab = kernels::kFullKRows + 232}, folder_->path() / "m", pool));
    auto opened = model::Checkpoint::open(folder_->path() / "m");
    ASSERT_TRUE(opened) << opened.error().message;
    checkpoint_ = new model::Checkpoint(std::move(opened).value());
  }
  static void TearDownTestSuite() {
    delete std::exchange(checkpoint_, nullptr);
    delete std::exchange(folder_, nullptr);
  }

  static EngineConfig config(bool screened) {
    EngineConfig config{.threads = 2, .max_context = 128, .kv_tokens = 4096, .step_tokens = 64};
    config.max_sequences   = 12;
    config.screened_argmax = screened;
    return config;
  }

  struct Answer {
    std::vector<TokenId> ids;
    std::string error;
    bool operator==(const Answer&) const = default;
  };

  // So many at a time.
  static std::vector<Answer> answers(const EngineConfig& config, const std::vector<SamplingParameters>& asked,
                                     size_t at_once) {
    auto running = Engine::start(*checkpoint_, config).value();
    std::vector<Answer> all(asked.size());
    for (size_t first = 0; first < asked.size(); first += at_once) {
      const size_t end = std::min(first + at_once, asked.size());
      std::promise<void> ended;
      size_t left = end - first;
      for (size_t r = first; r < end; ++r) {
        Request request{.sampling = asked[r], .max_tokens = 20};
        for (size_t t = 0; t < 30; ++t)  // repeats itself, so that something is drafted
          request.prompt.push_back(static_cast<TokenId>(t % 5 * 1000 + r));
        const auto taken = running->submit(std::move(request), [&, r](const RequestOutput& progress) {
          for (const Sampled& token : progress.tokens) all[r].ids.push_back(token.id);
          all[r].error += progress.error;
          if (progress.finish && --left == 0) ended.set_value();
        });
        EXPECT_TRUE(std::holds_alternative<RequestId>(taken));
      }
      ended.get_future().wait();
    }
    return all;
  }

  static std::vector<SamplingParameters> questions() {
    std::vector<SamplingParameters> all;
    for (uint64_t r = 0; r < 24; ++r) {
      all.push_back({.temperature = 0.4 * static_cast<double>(r % 4), .seed = r});
      if (r % 6 == 5) all.back().top_p = 0.7;
      if (r % 9 == 8) all.back().logprobs = 3;
      if (r % 11 == 10) all.back().frequency_penalty = 0.5;
    }
    return all;
  }

  static model::TempFolder* folder_;
  static model::Checkpoint* checkpoint_;
};
model::TempFolder* ScreenedArgmax::folder_     = nullptr;
model::Checkpoint* ScreenedArgmax::checkpoint_ = nullptr;

TEST_F(ScreenedArgmax, GivesTheSameTokens) {
  ASSERT_TRUE(has_screening(checkpoint_->config, config(true)));
  const auto asked    = questions();
  const auto expected = answers(config(false), asked, 1);
  for (const Answer& answer : expected) {
    EXPECT_EQ(answer.error, "");
    EXPECT_EQ(answer.ids.size(), 20u);
  }
  for (const size_t at_once : {1, 5, 12}) {  // 12 rows are too many for the screen
    EXPECT_EQ(answers(config(true), asked, at_once), expected) << at_once << " at once";
    EngineConfig drafts    = config(true);
    drafts.draft_tokens    = 3;
    drafts.draft_sequences = 12;
    EXPECT_EQ(answers(drafts, asked, at_once), expected) << at_once << " at once, with drafts";
  }
}

TEST_F(ScreenedArgmax, TakesTheMemoryOfACopy) {
  const auto workspace = [](bool screened) {
    return Engine::start(*checkpoint_, config(screened)).value()->stats().memory.workspace;
  };
  const model::Config& c = checkpoint_->config;
  const auto copy        = static_cast<double>(c.vocab_size * (c.hidden_size + 2 * c.hidden_size / 32 + 16) +
                                        c.vocab_size / 64 * (2 * c.hidden_size + 4));
  EXPECT_NEAR(static_cast<double>(workspace(true) - workspace(false)), copy, 0.01 * copy);
}

}  // namespace
}  // namespace fathom::engine
