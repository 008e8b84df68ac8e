#include "serve/load_target.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "serve/fake_generator.h"
#include "serve/scripted_server.h"

namespace fathom::serve {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

struct Told {
  std::vector<LoadClock::time_point> content;
  std::promise<AnswerEnd> end;

  AnswerListener listener() {
    return {.content = [this](auto at) { content.push_back(at); },
            .end     = [this](auto, const AnswerEnd& e) { end.set_value(e); }};
  }
  AnswerEnd wait() { return end.get_future().get(); }
};

// An answer fed by hand: pieces come at the seconds given by their index.
struct Fed {
  Told told;
  OpenAiAnswer answer{told.listener()};

  static LoadClock::time_point at(int i) { return LoadClock::time_point(std::chrono::seconds(i)); }
  AnswerEnd feed(int status, const std::vector<std::string>& pieces, std::string error = "") {
    answer.status(status);
    for (size_t i = 0; i < pieces.size(); ++i) answer.body(at(static_cast<int>(i)), pieces[i]);
    answer.end(at(static_cast<int>(pieces.size())), std::move(error));
    return told.wait();
  }
};

std::string event(const json& object) { return "data: " + object.dump() + "\n\n"; }
json chat(const json& delta, const json& reason = nullptr) {
  return {{"choices", {{{"index", 0}, {"delta", delta}, {"finish_reason", reason}}}}};
}
json text(const char* said, const json& reason = nullptr) {
  return {{"choices", {{{"index", 0}, {"text", said}, {"finish_reason", reason}}}}};
}
const json kUsage{{"choices", json::array()}, {"usage", {{"prompt_tokens", 11}, {"completion_tokens", 5}}}};
const std::string kDone = "data: [DONE]\n\n";

TEST(OpenAiAnswer, TheFirstTokenIsTheFirstContentThatIsNotEmpty) {
  Fed fed;
  const auto end = fed.feed(200, {event(chat({{"role", "assistant"}, {"content", ""}})), ": ping\n\n",
                                  event(chat({{"content", "Hi"}})), event(chat({{"content", " you"}})),
                                  event(chat(json::object(), "stop")), event(kUsage), kDone});
  EXPECT_EQ(end.error, "");
  EXPECT_EQ(fed.told.content, (std::vector{Fed::at(2), Fed::at(3)}));
  EXPECT_EQ(end.input_tokens, 11);
  EXPECT_EQ(end.output_tokens, 5);
}

TEST(OpenAiAnswer, ReasoningAndToolCallsAreContentToo) {
  Fed fed;
  const auto end =
      fed.feed(200, {event(chat({{"reasoning_content", "hm"}})), event(chat({{"reasoning", "so"}})),
                     event(chat({{"content", nullptr}, {"tool_calls", {{{"index", 0}}}}})),
                     event(chat({{"content", ""}}, "stop")), kDone});
  EXPECT_EQ(end.error, "");
  EXPECT_EQ(fed.told.content.size(), 3u);
}

TEST(OpenAiAnswer, WithoutUsageChunksAreCounted) {
  Fed fed;
  const auto end = fed.feed(200, {event(text("a")), event(text("b")), event(text("", "length")), kDone});
  EXPECT_EQ(end.output_tokens, 2);
  EXPECT_FALSE(end.input_tokens);
}

TEST(OpenAiAnswer, AnAnswerThatShowsNothingBeginsWithItsEnd) {
  Fed fed;
  const auto end = fed.feed(200, {event(text("")), event(text("", "stop")), event(kUsage), kDone});
  EXPECT_EQ(end.error, "");
  EXPECT_EQ(fed.told.content, std::vector{Fed::at(1)});
}

TEST(OpenAiAnswer, AnyCutTellsTheSame) {
  const std::string all =
      event(text("gr\xC3\xBC\xC3\x9F")) + event(text("b", "stop")) + event(kUsage) + kDone;
  for (size_t cut = 0; cut <= all.size(); ++cut) {
    Fed fed;
    const auto end = fed.feed(200, {all.substr(0, cut), all.substr(cut)});
    ASSERT_EQ(end.error, "") << cut;
    ASSERT_EQ(fed.told.content.size(), 2u) << cut;
    ASSERT_EQ(end.output_tokens, 5) << cut;
  }
}

TEST(OpenAiAnswer, EveryWayToFailHasItsSentence) {
  const struct {
    int status;
    std::vector<std::string> pieces;
    std::string error, said;
  } kCases[] = {
      {200, {event(text("a"))}, "", "before [DONE]"},
      {200, {}, "", "before [DONE]"},
      {200, {kDone}, "", "without any choice"},
      {200, {event(text("a")), "data: {oops\n\n", kDone}, "", "no JSON object"},
      {200, {event(text("a")), event({{"error", {{"message", "out of pages"}}}}), kDone}, "", "out of pages"},
      {200, {event(text("a")), kDone}, "cut off", "cut off"},
      {200, {std::string(2 << 20, 'x')}, "", "more than"},
      {429, {"{\"error\":{\"message\":\"queue", " full\",\"code\":429}}"}, "", "HTTP 429: queue full"},
      {400, {"{\"object\":\"error\",\"message\":\"flat\"}"}, "", "HTTP 400: flat"},
      {500, {"<html>\n"}, "", "HTTP 500: <html>"},
      {503, {}, "", "HTTP 503: no explanation"},
  };
  for (const auto& [status, pieces, error, said] : kCases) {
    Fed fed;
    const auto end = fed.feed(status, pieces, error);
    EXPECT_NE(end.error.find(said), std::string::npos) << "'" << end.error << "' does not say " << said;
  }
}

// Shapes that no server should send must not crash the client.
TEST(OpenAiAnswer, OddShapesAreNoContent) {
  Fed fed;
  const auto end = fed.feed(
      200, {event({{"choices", 3}}), event({{"choices", {1, nullptr}}}),
            event({{"choices", {{{"delta", 4}}}}}), event({{"choices", {{{"delta", {{"content", 7}}}}}}}),
            event({{"usage", {{"completion_tokens", "x"}}}}), event({{"usage", 1}, {"error", nullptr}}),
            event(text("a", "stop")), kDone});
  EXPECT_EQ(end.error, "");
  EXPECT_EQ(fed.told.content.size(), 1u);
  EXPECT_EQ(end.output_tokens, 1);
}

TEST(OpenAiTarget, SendsWhatTheApiAsksFor) {
  std::string head;
  json body;
  ScriptedServer server([&](const ScriptedServer::Exchange& e) {
    head = e.head;
    body = json::parse(e.body);
    return e.send(std::string(kStreamHead) + http_chunk(event(text("a", "stop")) + kDone) +
                  std::string(kStreamEnd));
  });
  auto client    = std::move(HttpClient::open({.port = server.port(), .prefix = "/p"})).value();
  const auto ask = [&](OpenAiOptions options, const LoadRequest& request) {
    Told told;
    const auto target = openai_target(*client, std::move(options));
    target->send(request, told.listener());
    EXPECT_EQ(told.wait().error, "");
  };
  ask({.model = "m", .api_key = "secret", .ignore_eos = true, .temperature = 0},
      {.ids = {5, 6}, .output_tokens = 9});
  EXPECT_EQ(head.substr(0, head.find('\r')), "POST /p/v1/completions HTTP/1.1");
  EXPECT_NE(head.find("Authorization: Bearer secret"), std::string::npos);
  EXPECT_EQ(body, (json{{"model", "m"},
                        {"prompt", {5, 6}},
                        {"max_tokens", 9},
                        {"stream", true},
                        {"stream_options", {{"include_usage", true}}},
                        {"ignore_eos", true},
                        {"temperature", 0.0}}));
  ask({.endpoint = "/v1/chat/completions", .model = "m"}, {.text = "say \xFF", .output_tokens = 3});
  EXPECT_EQ(head.find("Authorization"), std::string::npos);
  EXPECT_EQ(body["messages"], (json{{{"role", "user"}, {"content", "say \xEF\xBF\xBD"}}}));
  EXPECT_EQ(body["max_completion_tokens"], 3);
  EXPECT_FALSE(body.contains("temperature"));
  EXPECT_FALSE(body.contains("ignore_eos"));
}

TEST(FirstModel, IsTheServersFirstOrAnErrorWithARemedy) {
  const auto reply = [](int status, const std::string& body) {
    const std::string answer = "HTTP/1.1 " + std::to_string(status) +
                               " X\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    ScriptedServer server([answer](const ScriptedServer::Exchange& e) { return e.send(answer); });
    return first_model(*std::move(HttpClient::open({.port = server.port()})).value(), "");
  };
  const auto model = reply(200, R"({"object":"list","data":[{"id":"a/b"},{"id":"c"}]})");
  ASSERT_TRUE(model);
  EXPECT_EQ(*model, "a/b");
  for (const auto& [status, body] : {std::pair{200, R"({"data":[]})"},
                                     {200, "[]"},
                                     {200, R"({"data":[{"id":3}]})"},
                                     {401, R"({"error":{"message":"who are you"}})"},
                                     {200, "\xFF"}}) {
    const auto refused = reply(status, body);
    ASSERT_FALSE(refused) << body;
    EXPECT_NE(refused.error().message.find("--model"), std::string::npos);
  }
}

TEST(EngineTarget, AnswersInProcessWithSeedsOfTheirOwn) {
  FakeGenerator engine;
  const auto target = engine_target(engine, {.sampling = {.seed = 100}});
  Told a, b;
  target->send({.ids = {1, 2, 3}, .output_tokens = 4}, a.listener());
  target->send({.ids = {1}, .output_tokens = 1}, b.listener());
  const AnswerEnd first = a.wait(), second = b.wait();
  EXPECT_EQ(first.error, "");
  EXPECT_EQ(first.input_tokens, 3);
  EXPECT_EQ(first.output_tokens, 4);
  EXPECT_EQ(second.output_tokens, 1);
  EXPECT_EQ(a.content.size(), 4u);
  EXPECT_EQ(engine.seeds, (std::vector<uint64_t>{100, 101}));
}

TEST(EngineTarget, RefusalsAndErrorsAreFailures) {
  FakeGenerator full({.queue = 0}), breaks({.tokens_end = 3});
  Told refused, broken;
  engine_target(full, {})->send({.ids = {1}}, refused.listener());
  EXPECT_EQ(refused.wait().error, "the queue is full");
  const auto target = engine_target(breaks, {});
  target->send({.ids = {1}, .output_tokens = 10}, broken.listener());
  const AnswerEnd end = broken.wait();
  EXPECT_EQ(end.error, "a step failed");
  EXPECT_EQ(end.output_tokens, 2);
}

TEST(EngineTarget, AbandonCancelsAndTellsNobody) {
  FakeGenerator engine({.holds_back = true});
  const auto target = engine_target(engine, {});
  int ends          = 0;
  for (int i = 0; i < 10; ++i)
    target->send({.ids = {1}, .output_tokens = 5},
                 {.content = [](auto) {}, .end = [&](auto, const AnswerEnd&) { ++ends; }});
  target->abandon();
  EXPECT_EQ(ends, 0);
}

}  // namespace
}  // namespace fathom::serve
