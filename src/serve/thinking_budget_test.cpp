#include "serve/thinking_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

#include "serve/structured_output.h"

namespace fathom::serve {
namespace {

using Kind = ConstraintRequest::Kind;
using model::TokenId;

class ThinkingBudgets : public testing::Test {
 protected:
  const model::Tokenizer tokenizer_ =
      *model::Tokenizer::load(FATHOM_SOURCE_TREE "/models/tiny/tokenizer.json");
  const model::HarmonyTokens harmony_ = *model::HarmonyTokens::find(tokenizer_);
  const int64_t vocab_size_           = tokenizer_.vocab_size() + 7;
  const OutputConstraints constraints_{tokenizer_, harmony_, {}, vocab_size_};
  const OutputConstraints plain_{tokenizer_, std::nullopt, {harmony_.endoftext}, vocab_size_};

  std::unique_ptr<engine::Constraint> budget(int64_t tokens) const {
    return *constraints_.make({.kind = Kind::text, .max_reasoning_tokens = tokens});
  }
  std::vector<TokenId> ids(const std::string& text) const {
    return tokenizer_.encode(text, model::AddedTokens::recognised).value();
  }
  bool allows(engine::Constraint& constraint, TokenId id) const {
    std::vector<float> logits(static_cast<size_t>(vocab_size_));
    constraint.mask_logits(logits);
    return logits[static_cast<size_t>(id)] == 0;
  }
  // The number of allowed tokens.
  int64_t choices(engine::Constraint& constraint) const {
    std::vector<float> logits(static_cast<size_t>(vocab_size_));
    constraint.mask_logits(logits);
    return std::count(logits.begin(), logits.end(), 0.0f);
  }
  // The first token of the text that is forbidden, as text; "" if none is.
  std::string refused(engine::Constraint& constraint, const std::string& text) const {
    for (const TokenId id : ids(text)) {
      if (!allows(constraint, id)) return std::string(tokenizer_.bytes(id));
      constraint.accept_token(id);
    }
    return "";
  }
  // What a model that always reasons on if it may, and writes as many messages as it may, spends before the
  // answer. Stops at `most`.
  int64_t spent(engine::Constraint& constraint, const std::string& thought, int64_t most) const {
    int64_t tokens  = 0;
    const auto take = [&](const std::string& text) {
      for (const TokenId id : ids(text)) {
        if (!allows(constraint, id)) return false;
        constraint.accept_token(id);
        ++tokens;
      }
      return true;
    };
    while (tokens < most && take("<|channel|>analysis<|message|>" + thought) &&
           take("<|end|><|start|>assistant"))
      continue;
    return tokens;
  }
};

TEST_F(ThinkingBudgets, NothingIsForbiddenBeforeTheBudgetIsSpent) {
  const auto constraint = budget(1000);
  for (const char* text : {"<|channel|>analysis<|message|>Hm. <|end|>",
                           "<|start|>assistant<|channel|>commentary to=functions.f ",
                           "<|constrain|>json<|message|>{}<|call|>"}) {
    for (const TokenId id : ids(text)) {
      EXPECT_EQ(choices(*constraint), vocab_size_);
      constraint->accept_token(id);
    }
  }
}

TEST_F(ThinkingBudgets, TheMessageEndsAndAnotherChannelFollows) {
  const auto constraint = budget(3);
  EXPECT_EQ(refused(*constraint, "<|channel|>analysis<|message|>"), "");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(choices(*constraint), vocab_size_);
    constraint->accept_token(ids("a").front());
  }
  for (const TokenId id : ids("<|end|><|start|>assistant<|channel|>")) {
    EXPECT_EQ(choices(*constraint), 1);
    ASSERT_TRUE(allows(*constraint, id));
    constraint->accept_token(id);
  }
  const auto another = constraint->clone();
  EXPECT_FALSE(allows(*constraint, ids("analysis").front()));
  EXPECT_FALSE(allows(*constraint, ids("a").front()));
  EXPECT_EQ(refused(*constraint, "final<|message|>an analysis<|end|><|start|>assistant<|channel|>"), "");
  EXPECT_FALSE(allows(*constraint, ids("analysis").front()));
  EXPECT_EQ(refused(*another, "commentary to=functions.f <|constrain|>json<|message|>{\"a\":1}<|call|>"), "");
}

TEST_F(ThinkingBudgets, WithoutABudgetTheFirstMessageIsTheAnswer) {
  const auto constraint = budget(0);
  EXPECT_EQ(refused(*constraint, "<|channel|>"), "");
  EXPECT_FALSE(allows(*constraint, ids("analysis").front()));
  EXPECT_EQ(refused(*constraint, "final<|message|>Yes.<|return|>"), "");
}

// The answer of a model that would think for ever has half of max_tokens, with what its frame needs.
TEST_F(ThinkingBudgets, AnAnswerInAFormatHasHalfOfTheTokens) {
  for (const int64_t most : {1, 20, 64, 200, 1000})
    for (const std::string& thought : {std::string(2000, 'a'), std::string("a"), std::string()}) {
      const auto constraint = *constraints_.make({.kind = Kind::json_object, .max_tokens = most});
      EXPECT_LE(spent(*constraint, thought, most), std::max<int64_t>(most / 2, 1)) << most << " " << thought;
      if (most >= 200 && thought.size() > 1) {
        const auto again = *constraints_.make({.kind = Kind::json_object, .max_tokens = most});
        EXPECT_GT(spent(*again, thought, most), most / 4) << "half is not a tenth";
      }
    }
  // No limit where none is asked for, and the client's where it is.
  const auto unlimited = *constraints_.make({.kind = Kind::json_object});
  EXPECT_GE(spent(*unlimited, "a", 500), 500);
  const auto own =
      *constraints_.make({.kind = Kind::json_object, .max_reasoning_tokens = 90, .max_tokens = 100});
  EXPECT_GT(spent(*own, std::string(2000, 'a'), 100), 90);
}

TEST_F(ThinkingBudgets, TextWithoutABudgetOrWithoutHarmonyIsFree) {
  EXPECT_EQ(*constraints_.make({.kind = Kind::text}), nullptr);
  EXPECT_EQ(*plain_.make({.kind = Kind::text, .max_reasoning_tokens = 5}), nullptr);
}

}  // namespace
}  // namespace fathom::serve
