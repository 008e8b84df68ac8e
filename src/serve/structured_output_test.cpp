#include "serve/structured_output.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>

namespace fathom::serve {
namespace {

using Kind = ConstraintRequest::Kind;
using model::HarmonyMessage;
using model::TokenId;

constexpr const char* kWeather =
    R"({"type":"object","properties":{"city":{"type":"string","maxLength":8},"days":{"type":"integer","minimum":1,"maximum":14}},"required":["city"]})";

class OutputConstraint : public testing::Test {
 protected:
  const model::Tokenizer tokenizer_ =
      *model::Tokenizer::load(FATHOM_SOURCE_TREE "/models/tiny/tokenizer.json");
  const model::HarmonyTokens harmony_ = *model::HarmonyTokens::find(tokenizer_);
  const int64_t vocab_size_           = tokenizer_.vocab_size() + 7;
  const OutputConstraints constraints_{tokenizer_, harmony_, {}, vocab_size_};
  const OutputConstraints plain_{tokenizer_, std::nullopt, {harmony_.endoftext}, vocab_size_};

  std::unique_ptr<engine::Constraint> make(const ConstraintRequest& request) const {
    auto constraint = constraints_.make(request);
    EXPECT_TRUE(constraint) << constraint.error().message;
    return *std::move(constraint);
  }

  std::set<TokenId> allowed(engine::Constraint& constraint) const {
    std::vector<float> logits(static_cast<size_t>(vocab_size_));
    constraint.mask_logits(logits);
    std::set<TokenId> ids;
    for (size_t id = 0; id < logits.size(); ++id)
      if (logits[id] == 0) ids.insert(static_cast<TokenId>(id));
    EXPECT_FALSE(ids.empty());
    return ids;
  }

  // Generates up to a stop token: chooses uniformly among the allowed tokens, but ends messages, strings and
  // objects with probability 1/4 where it may.
  std::vector<TokenId> generate(engine::Constraint& constraint, std::mt19937& random) const {
    std::vector<TokenId> ids;
    while (ids.size() < 3000) {
      const auto choices = allowed(constraint);
      TokenId id         = *std::next(choices.begin(), static_cast<int64_t>(random() % choices.size()));
      for (const TokenId end : {tokenizer_.encode("\"")->front(), tokenizer_.encode("}")->front(),
                                harmony_.end, harmony_.return_, harmony_.call, harmony_.endoftext})
        if (choices.count(end) > 0 && random() % 4 == 0) id = end;
      constraint.accept_token(id);
      ids.push_back(id);
      if (id == harmony_.return_ || id == harmony_.call || id == harmony_.endoftext) return ids;
    }
    ADD_FAILURE() << "no end: " << tokenizer_.decode(ids).substr(0, 500);
    return ids;
  }

  std::vector<HarmonyMessage> messages(const std::vector<TokenId>& ids) const {
    model::HarmonyParser parser(tokenizer_, harmony_);
    for (const TokenId id : ids) parser.add(id);
    parser.finish();
    return parser.messages();
  }

  // Feeds a text that spells out its control tokens; false where the constraint forbids a token.
  bool follows(engine::Constraint& constraint, const std::string& text) const {
    const auto ids = tokenizer_.encode(text, model::AddedTokens::recognised).value();
    for (const TokenId id : ids) {
      if (allowed(constraint).count(id) == 0) return false;
      constraint.accept_token(id);
    }
    return true;
  }
};

TEST_F(OutputConstraint, FinalContentMatchesWhateverWasThoughtBefore) {
  std::mt19937 random(1);
  int thoughts = 0;
  for (int i = 0; i < 40; ++i) {
    const auto constraint = make({.kind = Kind::json_schema, .schema = kWeather});
    const auto ids        = generate(*constraint, random);
    const auto said       = messages(ids);
    ASSERT_FALSE(said.empty());
    EXPECT_EQ(ids.back(), harmony_.return_);
    for (size_t m = 0; m + 1 < said.size(); ++m, ++thoughts) EXPECT_EQ(said[m].channel, "analysis");
    EXPECT_EQ(said.back().channel, "final");
    EXPECT_EQ(said.back().recipient, "");
    const nlohmann::json value = nlohmann::json::parse(said.back().content);
    EXPECT_TRUE(value.at("city").is_string());
    if (value.contains("days")) {
      EXPECT_TRUE(value["days"] >= 1 && value["days"] <= 14) << value;
    }
    EXPECT_EQ(value.size(), 1u + value.contains("days"));
  }
  EXPECT_GT(thoughts, 10);
}

TEST_F(OutputConstraint, HeadersLeaveNoWayAround) {
  const ConstraintRequest request{.kind = Kind::json_object};
  for (const char* text : {"<|channel|>final<|message|>{\"a\": [1]}<|return|>",
                           "<|channel|>final <|constrain|>json<|message|>{}<|return|>",
                           "<|channel|>analysis<|message|>I think. "
                           "{\"<|end|><|start|>assistant<|channel|>analysis<|message|><|end|><|start|>"
                           "assistant<|channel|>final<|message|>{}<|return|>"})
    EXPECT_TRUE(follows(*make(request), text)) << text;
  for (const char* text :
       {"{}", "<|message|>{}", "<|channel|>commentary<|message|>", "<|channel|>final<|message|>[",
        "<|channel|>final<|message|>{}<|end|>", "<|channel|>final<|message|>{<|return|>",
        "<|channel|>final to=functions.f", "<|channel|>analysis to=functions.f",
        "<|channel|>analysis<|message|>a<|return|>", "<|channel|>analysis<|message|>a<|call|>",
        "<|channel|>analysis<|message|>a<|channel|>", "<|channel|>analysis<|message|><|end|><|channel|>",
        "<|channel|>analysis<|message|><|end|><|start|>user", "<|start|>assistant", "<|return|>",
        "<|endoftext|>"})
    EXPECT_FALSE(follows(*make(request), text)) << text;
}

TEST_F(OutputConstraint, ReasoningMayBeForbiddenOrBounded) {
  EXPECT_FALSE(follows(*make({.kind = Kind::json_object, .allow_reasoning = false}), "<|channel|>analysis"));
  EXPECT_TRUE(follows(*make({.kind = Kind::json_object, .allow_reasoning = false}),
                      "<|channel|>final<|message|>{}<|return|>"));
  EXPECT_FALSE(follows(*make({.kind = Kind::json_object, .max_reasoning_tokens = 0}), "<|channel|>analysis"));

  // A letter, then all that is between two messages, then two letters.
  const std::string between = "<|start|>assistant<|channel|>analysis<|message|>";
  const auto separators     = tokenizer_.encode(between, model::AddedTokens::recognised)->size();
  const auto constraint =
      make({.kind = Kind::json_object, .max_reasoning_tokens = static_cast<int64_t>(3 + separators)});
  ASSERT_TRUE(follows(*constraint, "<|channel|>analysis<|message|>"));
  const TokenId letter = tokenizer_.encode("a")->front();
  constraint->accept_token(letter);
  ASSERT_TRUE(follows(*constraint, "<|end|>" + between));
  constraint->accept_token(letter);
  constraint->accept_token(letter);
  EXPECT_EQ(allowed(*constraint), std::set<TokenId>{harmony_.end});
  EXPECT_TRUE(follows(*constraint, "<|end|><|start|>assistant<|channel|>"));
  EXPECT_FALSE(follows(*constraint, "analysis"));
}

TEST_F(OutputConstraint, ForcedCallsAreOfOneOfTheTools) {
  const ConstraintRequest request{
      .kind  = Kind::tool_call,
      .tools = {
          {"weather", kWeather}, {"weather_now", ""}, {"stop", R"({"type":"object","properties":{}})"}}};
  std::mt19937 random(2);
  std::set<std::string> called;
  for (int i = 0; i < 40; ++i) {
    const auto constraint = make(request);
    const auto ids        = generate(*constraint, random);
    const auto said       = messages(ids);
    ASSERT_FALSE(said.empty());
    EXPECT_EQ(ids.back(), harmony_.call);
    EXPECT_EQ(said.back().channel, "commentary");
    EXPECT_EQ(said.back().content_type, "json");
    called.insert(said.back().recipient);
    const nlohmann::json arguments = nlohmann::json::parse(said.back().content);
    EXPECT_TRUE(arguments.is_object());
    if (said.back().recipient == "functions.weather") {
      EXPECT_TRUE(arguments.at("city").is_string());
    }
    if (said.back().recipient == "functions.stop") {
      EXPECT_TRUE(arguments.empty());
    }
  }
  EXPECT_EQ(called, (std::set<std::string>{"functions.stop", "functions.weather", "functions.weather_now"}));
  EXPECT_TRUE(follows(*make(request),
                      "<|channel|>commentary to=functions.stop <|constrain|>json<|message|>{}<|call|>"));
  EXPECT_FALSE(follows(*make(request), "<|channel|>commentary to=functions.stops"));
  EXPECT_FALSE(follows(*make(request), "<|channel|>final"));
}

TEST_F(OutputConstraint, WithoutHarmonyTheFirstTokenIsHeldToo) {
  std::mt19937 random(3);
  const auto generated = [&](const ConstraintRequest& request) {
    auto constraint = plain_.make(request);
    EXPECT_TRUE(constraint) << constraint.error().message;
    auto ids = generate(**constraint, random);
    EXPECT_EQ(ids.back(), harmony_.endoftext);
    ids.pop_back();
    return nlohmann::json::parse(tokenizer_.decode(ids));
  };
  EXPECT_TRUE(generated({.kind = Kind::json_schema, .schema = kWeather}).at("city").is_string());
  EXPECT_TRUE(generated({.kind = Kind::json_object}).is_object());
  const nlohmann::json call = generated({.kind = Kind::tool_call, .tools = {{"weather", kWeather}}});
  EXPECT_EQ(call.at("name"), "weather");
  EXPECT_TRUE(call.at("arguments").at("city").is_string());
}

TEST_F(OutputConstraint, ACloneGoesOnByItself) {
  for (const OutputConstraints* constraints : {&constraints_, &plain_}) {
    auto made = constraints->make({.kind = Kind::json_schema, .schema = kWeather});
    ASSERT_TRUE(made) << made.error().message;
    std::mt19937 random(5);
    for (int step = 0; step < 40; ++step) {
      const auto clone  = (*made)->clone();
      const auto before = allowed(**made);
      ASSERT_EQ(allowed(*clone), before);
      generate(*clone, random);
      ASSERT_EQ(allowed(**made), before) << "what a clone read, the original has read too";
      (*made)->accept_token(*std::next(before.begin(), static_cast<int64_t>(random() % before.size())));
    }
  }
}

TEST_F(OutputConstraint, ErrorsNameTheToolAndThePlace) {
  const auto message = [&](const ConstraintRequest& request) {
    const auto made = constraints_.make(request);
    EXPECT_FALSE(made);
    return made ? "" : made.error().message;
  };
  EXPECT_NE(message({.kind = Kind::json_schema, .schema = R"({"not":{}})"}).find("#/not"), std::string::npos);
  EXPECT_NE(message({.kind = Kind::tool_call, .tools = {{"f", "{"}}}).find("'f'"), std::string::npos);
  EXPECT_NE(message({.kind = Kind::tool_call}).find("tools"), std::string::npos);
}

}  // namespace
}  // namespace fathom::serve
