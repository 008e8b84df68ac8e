#include "engine/static_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "engine/text_model.h"
#include "model/make.h"
#include "model/tiny_checkpoint.h"

namespace fathom::engine {
namespace {

using model::TokenId;

std::vector<TokenId> greedy_alone(TextModel& model, const std::vector<TokenId>& prompt,
                                  const std::vector<TokenId>& eos, size_t context) {
  model.reset();
  std::vector<TokenId> answer;
  auto logits = model.append(prompt);
  for (;;) {
    answer.push_back(static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    if (std::find(eos.begin(), eos.end(), answer.back()) != eos.end() ||
        prompt.size() + answer.size() == context)
      return answer;
    logits = model.append(std::span(answer).last(1));
  }
}

// Prompts of many lengths, together longer than a step, some of them ended by the model and some by the
// context.
TEST(StaticBatch, AnswersAsEachWouldAlone) {
  model::TempFolder folder;
  ThreadPool pool(2);
  ASSERT_TRUE(model::make_model({.shape = model::Shape::tiny, .seed = 3}, folder.path(), pool));
  auto checkpoint = model::Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint);
  constexpr int64_t kContext = 160;
  std::vector<std::vector<TokenId>> prompts;
  for (const size_t length : {1u, 2u, 63u, 64u, 65u, 150u, 159u, 90u, 5u, 31u}) {
    auto& prompt = prompts.emplace_back();
    for (size_t t = 0; t < length; ++t)
      prompt.push_back(static_cast<TokenId>((t * t + length * t + 3) % 384));
  }
  TextModel alone = TextModel::open(folder.path(), {.threads = 2, .max_context = kContext}).value();
  checkpoint->eos_ids.clear();
  StaticBatch endless(*checkpoint, 10, kContext, pool);
  const auto answers = endless.greedy(prompts);
  ASSERT_EQ(answers.size(), prompts.size());
  for (size_t s = 0; s < prompts.size(); ++s)
    EXPECT_EQ(answers[s].size(), static_cast<size_t>(kContext) - prompts[s].size()) << s;

  checkpoint->eos_ids = {answers[0][3], answers[4][20]};
  StaticBatch batch(*checkpoint, 12, kContext, pool);
  const auto ended = batch.greedy(prompts);
  EXPECT_EQ(ended[0].size(), 4u);
  for (size_t s = 0; s < prompts.size(); ++s)
    EXPECT_EQ(ended[s], greedy_alone(alone, prompts[s], checkpoint->eos_ids, kContext)) << s;
}

TEST(StaticBatch, CountsTheExpertsOfEveryToken) {
  model::TempFolder folder;
  ThreadPool pool(1);
  ASSERT_TRUE(model::make_model({.shape = model::Shape::tiny, .seed = 3}, folder.path(), pool));
  auto checkpoint = model::Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint);
  checkpoint->eos_ids.clear();
  StaticBatch batch(*checkpoint, 2, 10, pool);
  batch.greedy(std::vector<std::vector<TokenId>>{{1, 2, 3}, {4}});
  const View<const int64_t, 2> load = batch.expert_load();
  for (int64_t l = 0; l < load.extent(0); ++l) {
    int64_t total = 0;
    for (int64_t e = 0; e < load.extent(1); ++e) total += load(l, e);
    EXPECT_EQ(total, (9 + 9) * 4) << l;  // the last token of a sequence goes nowhere
  }
}

}  // namespace
}  // namespace fathom::engine
