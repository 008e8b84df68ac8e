#include "load/target.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/fake_generator.h"
#include "http/scripted_server.h"

namespace fathom::load {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

struct Told {
  std::vector<Clock::time_point> content;
  std::promise<ResponseEnd> end;

  ResponseListener listener() {
    return {.content = [this](auto at) { content.push_back(at); },
            .end     = [this](auto, const ResponseEnd& e) { end.set_value(e); }};
  }
  ResponseEnd wait() { return end.get_future().get(); }
};

// A response fed by hand: piece i arrives at second i.
struct Fed {
  Told told;
  OpenAiResponse answer{told.listener()};

  static Clock::time_point at(int i) { return Clock::time_point(std::chrono::seconds(i)); }
  ResponseEnd feed(int status, const std::vector<std::string>& pieces, std::string error = "") {
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

TEST(OpenAiResponse, TheFirstTokenIsTheFirstContentThatIsNotEmpty) {
  Fed fed;
  const auto end = fed.feed(200, {event(chat({{"role", "assistant"}, {"content", ""}})), ": ping\n\n",
                                  event(chat({{"content", "Hi"}})), event(chat({{"content", " you"}})),
                                  event(chat(json::object(), "stop")), event(kUsage), kDone});
  EXPECT_EQ(end.error, "");
  EXPECT_EQ(fed.told.content, (std::vector{Fed::at(2), Fed::at(3)}));
  EXPECT_EQ(end.input_tokens, 11);
  EXPECT_EQ(end.output_tokens, 5);
}

TEST(OpenAiResponse, ReasoningAndToolCallsAreContentToo) {
  Fed fed;
  const auto end =
      fed.feed(200, {event(chat({{"reasoning_content", "hm"}})), event(chat({{"reasoning", "so"}})),
                     event(chat({{"content", nullptr}, {"tool_calls", {{{"index", 0}}}}})),
                     event(chat({{"content", ""}}, "stop")), kDone});
  EXPECT_EQ(end.error, "");
  EXPECT_EQ(fed.told.content.size(), 3u);
}

TEST(OpenAiResponse, WithoutUsageChunksAreCounted) {
  Fed fed;
  const auto end = fed.feed(200, {event(text("a")), event(text("b")), event(text("", "length")), kDone});
  EXPECT_EQ(end.output_tokens, 2);
  EXPECT_FALSE(end.input_tokens);
}

TEST(OpenAiResponse, AnAnswerThatShowsNothingBeginsWithItsEnd) {
  Fed fed;
  const auto end = fed.feed(200, {event(text("")), event(text("", "stop")), event(kUsage), kDone});
  EXPECT_EQ(end.error, "");
  EXPECT_EQ(fed.told.content, std::vector{Fed::at(1)});
}

TEST(OpenAiResponse, AnyCutTellsTheSame) {
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

TEST(OpenAiResponse, EveryWayToFailHasItsSentence) {
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

// Malformed events must not crash the client.
TEST(OpenAiResponse, OddShapesAreNoContent) {
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
  http::ScriptedServer server([&](const http::ScriptedServer::Exchange& e) {
    head = e.head;
    body = json::parse(e.body);
    return e.send(std::string(http::kStreamHead) + http::chunk(event(text("a", "stop")) + kDone) +
                  std::string(http::kStreamEnd));
  });
  auto client    = std::move(http::Client::open({.port = server.port(), .prefix = "/p"})).value();
  const auto ask = [&](OpenAiOptions options, const Request& request) {
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
    http::ScriptedServer server([answer](const http::ScriptedServer::Exchange& e) { return e.send(answer); });
    return first_model(*std::move(http::Client::open({.port = server.port()})).value(), "");
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
  engine::FakeGenerator engine;
  const auto target = engine_target(engine, {.sampling = {.seed = 100}});
  Told a, b;
  target->send({.ids = {1, 2, 3}, .output_tokens = 4}, a.listener());
  target->send({.ids = {1}, .output_tokens = 1}, b.listener());
  const ResponseEnd first = a.wait(), second = b.wait();
  EXPECT_EQ(first.error, "");
  EXPECT_EQ(first.input_tokens, 3);
  EXPECT_EQ(first.output_tokens, 4);
  EXPECT_EQ(second.output_tokens, 1);
  EXPECT_EQ(a.content.size(), 4u);
  EXPECT_EQ(engine.seeds, (std::vector<uint64_t>{100, 101}));
}

TEST(EngineTarget, RefusalsAndErrorsAreFailures) {
  engine::FakeGenerator full({.queue = 0}), breaks({.tokens_end = 3});
  Told refused, broken;
  engine_target(full, {})->send({.ids = {1}}, refused.listener());
  EXPECT_EQ(refused.wait().error, "the queue is full");
  const auto target = engine_target(breaks, {});
  target->send({.ids = {1}, .output_tokens = 10}, broken.listener());
  const ResponseEnd end = broken.wait();
  EXPECT_EQ(end.error, "a step failed");
  EXPECT_EQ(end.output_tokens, 2);
}

TEST(EngineTarget, AbandonCancelsAndTellsNobody) {
  engine::FakeGenerator engine({.holds_back = true});
  const auto target = engine_target(engine, {});
  int ends          = 0;
  for (int i = 0; i < 10; ++i)
    target->send({.ids = {1}, .output_tokens = 5},
                 {.content = [](auto) {}, .end = [&](auto, const ResponseEnd&) { ++ends; }});
  target->abandon();
  EXPECT_EQ(ends, 0);
}

}  // namespace
}  // namespace fathom::load
