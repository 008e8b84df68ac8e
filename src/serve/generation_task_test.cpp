#include "serve/generation_task.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "http/fake_exchange.h"
#include "serve/scripted_generator.h"

namespace fathom::serve {
namespace {

using engine::FinishReason;
using model::TokenId;

const model::Tokenizer& tokenizer() {
  static const auto kTokenizer =
      model::Tokenizer::load(FATHOM_SOURCE_TREE "/models/tiny/tokenizer.json").value();
  return kTokenizer;
}

std::vector<TokenId> encoded(std::string_view text) { return tokenizer().encode(text).value(); }

// Writes its calls as plain text.
class PlainReply : public ResponseWriter {
 public:
  PlainReply(bool stream, Usage& seen) : stream_(stream), seen_(seen) {}
  std::string begin() override { return "<"; }
  std::string add(size_t choice, std::span<const OutputDelta> deltas, const ChoiceFinish* end,
                  const Usage&) override {
    std::string text = "[" + std::to_string(choice) + ":";
    for (const OutputDelta& piece : deltas) text += piece.text;
    if (end) text += "|" + std::string(name_of(end->reason));
    text += "]";
    if (stream_) return text;
    body_ += text;
    return "";
  }
  std::string done(const Usage& usage) override {
    seen_ = usage;
    return body_ + ">";
  }
  std::string fail(const ApiError& error) override { return "!" + error.message; }

 private:
  const bool stream_;
  Usage& seen_;
  std::string body_;
};

struct GenerationScene {
  explicit GenerationScene(size_t choices, bool stream = true, std::vector<std::string> stops = {}) {
    for (size_t i = 0; i < choices; ++i)
      given.push_back({.request    = {.prompt = {1, 2, 3}, .max_tokens = 50},
                       .parser     = {.stop_strings = stops},
                       .own_prompt = i == 0});
    streaming = stream;
  }
  std::optional<engine::Refusal> start() {
    return GenerationTask::start(
        generator, tokenizer(), exchange, std::make_unique<PlainReply>(streaming, usage),
        {.stream = streaming, .ping_interval = ping_interval}, std::move(given), nullptr);
  }

  ScriptedGenerator generator;
  std::shared_ptr<http::FakeExchange> exchange = std::make_shared<http::FakeExchange>();
  Usage usage;
  std::vector<GenerationTask::Choice> given;
  bool streaming;
  std::chrono::milliseconds ping_interval{};
};

TEST(GenerationTask, WhatSeveralStepsBroughtGoesOutTogether) {
  GenerationScene scene(2);
  ASSERT_FALSE(scene.start());
  const auto a = encoded("abc"), b = encoded("xyz");
  scene.generator.say_each(0, a);
  scene.generator.say_each(1, b);
  scene.exchange->run();
  EXPECT_EQ(scene.exchange->text, "<[0:abc][1:xyz]");
  EXPECT_EQ(scene.exchange->writes.size(), 2u);  // begin() and this one
  scene.generator.say_each(0, a, FinishReason::length);
  scene.exchange->run();
  EXPECT_FALSE(scene.exchange->ended);
  scene.generator.say(1, {}, FinishReason::stop);
  scene.exchange->run();
  EXPECT_EQ(scene.exchange->text, "<[0:abc][1:xyz][0:abc|length][1:|stop]>");
  EXPECT_TRUE(scene.exchange->ended);
  EXPECT_FALSE(scene.exchange->misuse);
  EXPECT_EQ(scene.generator.sequences[0].cancelled + scene.generator.sequences[1].cancelled, 0);
}

TEST(GenerationTask, ABodyComesAtTheEnd) {
  GenerationScene scene(1, false);
  ASSERT_FALSE(scene.start());
  scene.generator.cached_tokens = 2;
  scene.generator.say_each(0, encoded("abc"));
  scene.exchange->run();
  EXPECT_EQ(scene.exchange->status, 0);
  scene.generator.say(0, {}, FinishReason::stop);
  scene.exchange->run();
  EXPECT_EQ(scene.exchange->status, 200);
  EXPECT_EQ(scene.exchange->text, "[0:abc][0:|stop]>");
  EXPECT_EQ(scene.usage.prompt_tokens, 3);
  EXPECT_EQ(scene.usage.cached_tokens, 2);
  EXPECT_EQ(scene.usage.completion_tokens, static_cast<int64_t>(encoded("abc").size()));
  EXPECT_DOUBLE_EQ(scene.usage.prompt_ms, 2);
  EXPECT_DOUBLE_EQ(scene.usage.predicted_ms, 4);
}

TEST(GenerationTask, AStreamPingsAsOftenAsAsked) {
  GenerationScene scene(1);
  scene.ping_interval = std::chrono::milliseconds(7);
  ASSERT_FALSE(scene.start());
  ASSERT_TRUE(scene.exchange->ping);
  EXPECT_EQ(scene.exchange->ping->piece, ": ping\n\n");
  EXPECT_EQ(scene.exchange->ping->after, scene.ping_interval);
  GenerationScene never(1);
  ASSERT_FALSE(never.start());
  EXPECT_TRUE(never.exchange->streaming);
  EXPECT_FALSE(never.exchange->ping);
}

TEST(GenerationTask, ASharedPromptCountsOnce) {
  GenerationScene scene(3, false);
  ASSERT_FALSE(scene.start());
  scene.generator.cached_tokens = 1;
  for (size_t i = 0; i < 3; ++i) scene.generator.say_each(i, encoded("a"), FinishReason::length);
  scene.exchange->run();
  EXPECT_EQ(scene.usage.prompt_tokens, 3);
  EXPECT_EQ(scene.usage.cached_tokens, 1);
  EXPECT_EQ(scene.usage.completion_tokens, 3);
  EXPECT_EQ(scene.usage.choices, 3);
}

TEST(GenerationTask, AStopStringCancelsOnceAndWaitsForTheEngine) {
  GenerationScene scene(1, true, {"c"});
  ASSERT_FALSE(scene.start());
  scene.generator.say_each(0, encoded("abcd"));
  scene.exchange->run();
  EXPECT_EQ(scene.exchange->text, "<[0:ab]");
  EXPECT_EQ(scene.generator.sequences[0].cancelled, 1);
  scene.generator.say_each(0, encoded("efc"));
  scene.exchange->run();
  EXPECT_EQ(scene.exchange->text, "<[0:ab]");
  scene.generator.say(0, {}, FinishReason::cancelled);
  scene.exchange->run();
  EXPECT_EQ(scene.exchange->text, "<[0:ab][0:|stop]>");
  EXPECT_EQ(scene.generator.sequences[0].cancelled, 1);
  EXPECT_EQ(scene.usage.completion_tokens, static_cast<int64_t>(encoded("abc").size()));
}

TEST(GenerationTask, AFailureEndsAllChoices) {
  for (const bool stream : {true, false}) {
    GenerationScene scene(3, stream);
    ASSERT_FALSE(scene.start());
    scene.generator.say_each(0, encoded("a"), FinishReason::stop);
    scene.generator.say_each(1, encoded("b"));
    scene.exchange->run();
    scene.generator.say(1, {}, FinishReason::error, "it broke");
    scene.exchange->run();
    EXPECT_EQ(scene.exchange->text, stream ? "<[0:a|stop][1:b]!it broke" : "!it broke");
    EXPECT_EQ(scene.exchange->status, stream ? 200 : 500);
    EXPECT_EQ(scene.generator.sequences[0].cancelled, 0);
    EXPECT_EQ(scene.generator.sequences[1].cancelled, 0);
    EXPECT_EQ(scene.generator.sequences[2].cancelled, 1);
    scene.generator.say(2, {}, FinishReason::cancelled);
    scene.exchange->run();
    EXPECT_TRUE(scene.exchange->ended);
    EXPECT_FALSE(scene.exchange->misuse);
  }
}

TEST(GenerationTask, ARefusalTakesBackWhatWasSubmitted) {
  GenerationScene scene(3);
  scene.generator.refusal = engine::Refusal{engine::Refusal::Reason::queue_full, "full"};
  scene.generator.accepts = 2;
  const auto refusal      = scene.start();
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->message, "full");
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(scene.generator.sequences[i].cancelled, 1);
    scene.generator.say(i, {}, FinishReason::cancelled);
  }
  scene.exchange->run();
  scene.exchange->leave();
  EXPECT_EQ(scene.exchange->calls, 0);
  EXPECT_EQ(scene.generator.sequences[0].cancelled, 1);
}

// Two choices take turns. The client leaves after any number of their steps, delivered or not.
TEST(GenerationTask, WhenTheClientGoesEachRunningRequestIsCancelledOnce) {
  const auto ids = encoded("one two stop three");
  for (const bool stream : {true, false})
    for (const bool seen : {true, false})
      for (size_t leave = 0; leave <= 2 * ids.size(); ++leave) {
        GenerationScene scene(2, stream, {"stop"});
        ASSERT_FALSE(scene.start());
        auto& sequences = scene.generator.sequences;
        for (size_t step = 0; step < leave; ++step) {
          const size_t i = step % 2;
          // The first choice ends early; the second meets a stop string.
          const bool last = i == 0 && step / 2 == 3;
          if (sequences[i].ended) continue;
          scene.generator.say_each(i, std::span(ids).subspan(step / 2, 1),
                                   last ? std::optional(FinishReason::length) : std::nullopt);
          if (seen || step + 1 < leave) scene.exchange->run();
        }
        const int sent = scene.exchange->calls;
        scene.exchange->leave();
        for (size_t i = 0; i < 2; ++i)
          if (!sequences[i].ended) {
            EXPECT_EQ(sequences[i].cancelled, 1) << leave;
            scene.generator.say(i, {}, FinishReason::cancelled);
          }
        scene.exchange->run();
        EXPECT_EQ(scene.exchange->calls, sent) << leave;
        EXPECT_FALSE(scene.exchange->misuse);
        for (const auto& sequence : sequences) EXPECT_LE(sequence.cancelled, 1);
        EXPECT_EQ(scene.exchange.use_count(), 1) << "the generation lives on";
      }
}

// As in the server: the engine reports on its thread while another thread formats.
TEST(GenerationTask, TheEngineSpeaksOnItsOwnThread) {
  GenerationScene scene(2);
  ASSERT_FALSE(scene.start());
  const auto ids = encoded("a long enough text to be cut anywhere");
  std::thread engine([&] {
    for (size_t at = 0; at < ids.size(); ++at)
      for (size_t i = 0; i < 2; ++i)
        scene.generator.say_each(i, std::span(ids).subspan(at, 1),
                                 at + 1 == ids.size() ? std::optional(FinishReason::stop) : std::nullopt);
  });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!scene.exchange->ended && std::chrono::steady_clock::now() < deadline) scene.exchange->run();
  engine.join();
  ASSERT_TRUE(scene.exchange->ended);
  EXPECT_EQ(scene.usage.completion_tokens, 2 * static_cast<int64_t>(ids.size()));
  EXPECT_FALSE(scene.exchange->misuse);
}

}  // namespace
}  // namespace fathom::serve
