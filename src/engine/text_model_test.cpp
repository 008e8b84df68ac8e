#include "engine/text_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/expect.h"
#include "core/thread_pool.h"
#include "model/make.h"
#include "model/tiny_checkpoint.h"

namespace fathom::engine {
namespace {

using model::TokenId;

class TextModelTest : public testing::Test {
 protected:
  TextModelTest() {
    ThreadPool pool(1);
    EXPECT_TRUE(model::make_model({.shape = model::Shape::tiny, .seed = 1}, folder_.path(), pool));
  }
  TextModel open(int64_t max_context = 64) {
    return TextModel::open(folder_.path(), {.threads = 2, .max_context = max_context}).value();
  }
  static std::vector<TokenId> prompt(int64_t n) {
    std::vector<TokenId> ids;
    for (int64_t t = 0; t < n; ++t) ids.push_back(static_cast<TokenId>((t * t * 5 + t) % 384));
    return ids;
  }

  model::TempFolder folder_;
};

TEST_F(TextModelTest, EveryPositionIsSeenOnceInOrder) {
  // More positions than rows whose logits are made together, and than a step has.
  for (const int64_t n : {1, 15, 16, 17, 40, 513}) {
    TextModel at_once = open(600), one_by_one = open(600);
    const std::vector<TokenId> ids = prompt(n);
    std::vector<std::vector<float>> seen;
    const auto last =
        at_once.append(ids, [&](std::span<const float> l) { seen.emplace_back(l.begin(), l.end()); });
    ASSERT_EQ(seen.size(), ids.size());
    EXPECT_TRUE(std::ranges::equal(seen.back(), last));
    for (size_t t = 0; t < ids.size(); ++t)
      ASSERT_TRUE(std::ranges::equal(seen[t], one_by_one.append(std::span(ids).subspan(t, 1)))) << t;
    EXPECT_EQ(at_once.context(), n);
  }
}

TEST_F(TextModelTest, WhatIsForgottenLeavesNoTrace) {
  TextModel model                = open();
  const std::vector<TokenId> ids = prompt(20), other = {7, 8, 9};
  const auto first = model.append(ids);
  const std::vector<float> kept(first.begin(), first.end());
  model.append(other);
  model.reset(20);
  model.append(std::vector<TokenId>{100, 101, 102, 103});
  model.reset(12);
  EXPECT_EQ(model.context(), 12);
  EXPECT_TRUE(std::ranges::equal(model.append(std::span(ids).subspan(12)), kept));
}

TEST_F(TextModelTest, Contracts) {
  TextModel model = open(8);
  EXPECT_THROW(model.append({}), ContractError);
  EXPECT_THROW(model.append(prompt(9)), ContractError);
  EXPECT_THROW(model.append(std::vector<TokenId>{384}), ContractError);
  EXPECT_THROW(model.reset(1), ContractError);
  EXPECT_EQ(model.append(prompt(8)).size(), 384u);
  EXPECT_THROW(model.append(prompt(1)), ContractError);
}

TEST_F(TextModelTest, AFolderThatIsNoModel) {
  model::TempFolder empty;
  const auto opened = TextModel::open(empty.path(), {});
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message.find("config.json"), std::string::npos);
}

}  // namespace
}  // namespace fathom::engine
