#include "serve/api.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "http/fake_exchange.h"
#include "serve/response_fixture.h"
#include "serve/scripted_generator.h"
#include "serve/structured_output.h"

namespace fathom::serve {
namespace {

using Json = nlohmann::ordered_json;
using engine::FinishReason;

const model::Checkpoint& checkpoint() {
  static const auto kCheckpoint = model::Checkpoint::open(FATHOM_SOURCE_TREE "/models/tiny").value();
  return kCheckpoint;
}

struct Scene {
  explicit Scene(ApiOptions options = {}, bool load = true)
      : api([&] {
          options.model_names = {"tiny", "alias"};
          options.page        = "<!doctype html>";
          options.openapi     = "{}";
          options.version     = "1.2";
          return options;
        }()) {
    if (load) ready();
  }
  void ready() {
    api.ready({.generator  = generator,
               .checkpoint = checkpoint(),
               .constraint = [this](const ConstraintRequest& asked) {
                 constraints.push_back(asked);
                 return Result<std::unique_ptr<engine::Constraint>>(Error{"cannot"});
               }});
  }

  std::shared_ptr<http::FakeExchange> ask(std::string method, std::string path, std::string body = "",
                                          std::vector<http::Header> headers = {}) {
    auto exchange = std::make_shared<http::FakeExchange>();
    api.handler()({.method  = std::move(method),
                   .path    = std::move(path),
                   .headers = std::move(headers),
                   .body    = std::move(body)},
                  exchange);
    EXPECT_FALSE(exchange->misuse);
    return exchange;
  }
  std::shared_ptr<http::FakeExchange> chat(const std::string& more) {
    return ask("POST", "/v1/chat/completions",
               R"({"messages":[{"role":"user","content":"Hi."}])" + more + "}");
  }
  // The last sequence generates all of `output` and ends.
  void answer(std::string_view output, FinishReason reason = FinishReason::stop) {
    generator.say_each(generator.sequences.size() - 1, ids_of(output), reason);
  }

  ScriptedGenerator generator;
  std::vector<ConstraintRequest> constraints;
  Api api;
};

std::string type_of(const http::FakeExchange& exchange) {
  return Json::parse(exchange.text)["error"]["type"];
}

TEST(Api, Operations) {
  Scene scene;
  for (const char* path :
       {"/health", "/v1/health", "/ping", "/live", "/ready", "/version", "/stats", "/v1/models"})
    EXPECT_EQ(scene.ask("GET", path)->status, 200) << path;
  EXPECT_EQ(scene.ask("HEAD", "/health")->status, 200);
  EXPECT_EQ(Json::parse(scene.ask("GET", "/version")->text)["version"], "1.2");
  EXPECT_EQ(scene.ask("GET", "/")->text, "<!doctype html>");
  EXPECT_EQ(scene.ask("GET", "/")->header("X-Frame-Options"), "DENY");
  const Json stats = Json::parse(scene.ask("GET", "/stats")->text);
  EXPECT_EQ(stats["running"], 3);
  EXPECT_EQ(stats["pages"], 10);
  EXPECT_EQ(stats["model"], "tiny");
  EXPECT_EQ(stats["memory_bytes"], (Json{{"weights", 100}, {"kv_cache", 20}, {"workspace", 3}}));
  EXPECT_TRUE(stats.contains("router_imbalance") && stats["router_imbalance"].is_null());
  const Json models = Json::parse(scene.ask("GET", "/v1/models")->text);
  EXPECT_EQ(models["object"], "list");
  EXPECT_EQ(models["data"][0]["id"], "tiny");
  EXPECT_EQ(models["data"][0]["root"], "tiny");
  EXPECT_EQ(models["data"][0]["max_model_len"], 512);
  EXPECT_EQ(models["data"].size(), 2u);
  EXPECT_EQ(Json::parse(scene.ask("GET", "/v1/models/alias")->text)["id"], "alias");
  EXPECT_EQ(scene.ask("GET", "/v1/models/other")->status, 404);
  EXPECT_EQ(scene.ask("GET", "/v1/models/")->status, 404);
}

TEST(Api, RefusesWhatItDoesNotServe) {
  Scene scene;
  const auto nowhere = scene.ask("GET", "/v1/\"nothing");
  EXPECT_EQ(nowhere->status, 404);
  EXPECT_NE(Json::parse(nowhere->text)["error"]["message"].get<std::string>().find("/v1/\"nothing"),
            std::string::npos);
  const auto get = scene.ask("GET", "/v1/chat/completions");
  EXPECT_EQ(get->status, 405);
  EXPECT_EQ(get->header("Allow"), "POST, OPTIONS");
  EXPECT_EQ(scene.ask("POST", "/health")->header("Allow"), "GET, HEAD, OPTIONS");
  const auto typed = [&](std::string type) {
    return scene.ask("POST", "/tokenize", R"({"prompt":"a"})", {{"content-type", std::move(type)}})->status;
  };
  EXPECT_EQ(typed("text/plain"), 415);
  EXPECT_EQ(typed("application/x-www-form-urlencoded"), 415);
  EXPECT_EQ(typed("application/json"), 200);
  EXPECT_EQ(typed("Application/JSON ; charset=utf-8"), 200);
  EXPECT_EQ(typed(""), 200);
  EXPECT_EQ(scene.ask("POST", "/v1/chat/completions", "{")->status, 400);
  const auto other = scene.chat(R"(,"model":"gpt-9")");
  EXPECT_EQ(other->status, 404);
  EXPECT_EQ(Json::parse(other->text)["error"]["param"], "model");
  EXPECT_EQ(scene.generator.sequences.size(), 0u);
}

TEST(Api, WantsItsKey) {
  Scene scene({.api_key = "secret"});
  const auto status = [&](const char* path, std::string value) {
    return scene.ask("GET", path, "", {{"Authorization", std::move(value)}})->status;
  };
  for (const char* path : {"/v1/models", "/metrics", "/stats", "/version"})
    EXPECT_EQ(status(path, ""), 401) << path;
  for (const char* path : {"/health", "/v1/health", "/ping", "/live", "/ready", "/", "/openapi.json"})
    EXPECT_EQ(status(path, ""), 200) << path;
  EXPECT_EQ(status("/v1/models", "Bearer secret"), 200);
  EXPECT_EQ(status("/v1/models", "bearer  secret"), 200);
  for (const char* wrong : {"Bearer", "Bearer ", "Bearer secre", "Bearer secrets", "Basic secret", "secret",
                            "Bearer secretsecret", "Bearer SECRET"})
    EXPECT_EQ(status("/v1/models", wrong), 401) << wrong;
  EXPECT_EQ(scene.ask("GET", "/v1/models")->header("WWW-Authenticate"), "Bearer");
  EXPECT_EQ(scene.ask("OPTIONS", "/v1/models")->status, 204);
}

TEST(Api, TellsBrowsersWhoMayCall) {
  Scene closed, some({.allowed_origins = {"https://a.example"}}), open({.allowed_origins = {"*"}});
  const auto origin = [](Scene& scene, std::string from) {
    return scene.ask("GET", "/v1/models", "", {{"Origin", std::move(from)}})
        ->header("Access-Control-Allow-Origin");
  };
  EXPECT_EQ(origin(closed, "https://a.example"), "");
  EXPECT_EQ(origin(some, "https://a.example"), "https://a.example");
  EXPECT_EQ(origin(some, "https://b.example"), "");
  EXPECT_EQ(origin(open, "https://b.example"), "*");
  const std::string wanted = "authorization, content-type, x-stainless-lang";
  const auto preflight =
      some.ask("OPTIONS", "/v1/chat/completions", "",
               {{"Origin", "https://a.example"}, {"Access-Control-Request-Headers", wanted}});
  EXPECT_EQ(preflight->status, 204);
  EXPECT_EQ(preflight->header("Access-Control-Allow-Origin"), "https://a.example");
  EXPECT_EQ(preflight->header("Access-Control-Allow-Methods"), "POST, OPTIONS");
  EXPECT_EQ(preflight->header("Access-Control-Allow-Headers"), wanted);
}

TEST(Api, EchoesRequestIds) {
  Scene scene;
  const auto id = [&](std::string given) {
    return scene.ask("GET", "/live", "", {{"X-Request-Id", std::move(given)}})->header("X-Request-Id");
  };
  EXPECT_EQ(id("abc-1.2:3_Z"), "abc-1.2:3_Z");
  for (const std::string& bad :
       {std::string(), std::string("a b"), std::string("a\r\nX: y"), std::string(129, 'a')}) {
    EXPECT_EQ(id(bad).size(), 32u);
    EXPECT_NE(id(bad), id(bad));
  }
}

TEST(Api, LoadsServesAndDrains) {
  Scene scene({}, false);
  for (const char* path : {"/health", "/ready", "/v1/models", "/stats", "/metrics"}) {
    EXPECT_EQ(scene.ask("GET", path)->status, 503) << path;
    EXPECT_NE(scene.ask("GET", path)->header("Retry-After"), "") << path;
  }
  EXPECT_EQ(scene.ask("GET", "/live")->status, 200);
  EXPECT_EQ(scene.ask("GET", "/")->status, 200);
  EXPECT_EQ(scene.chat("")->status, 503);
  scene.ready();
  EXPECT_EQ(scene.ask("GET", "/ready")->status, 200);
  const auto running = scene.chat(R"(,"stream":true)");
  scene.api.drain();
  EXPECT_EQ(scene.ask("GET", "/ready")->status, 503);
  EXPECT_EQ(scene.ask("GET", "/health")->status, 200);
  EXPECT_EQ(scene.chat("")->status, 503);
  scene.answer("Bye.");
  running->run();
  EXPECT_TRUE(running->ended);
}

TEST(Api, Chats) {
  Scene scene;
  const auto whole = scene.chat(R"(,"seed":5,"n":2,"max_tokens":40,"stop":["!"])");
  ASSERT_EQ(scene.generator.sequences.size(), 2u);
  const engine::Request& asked = scene.generator.sequences[1].request;
  EXPECT_EQ(asked.sampling.seed, 6u);
  EXPECT_EQ(asked.max_tokens, 40);
  EXPECT_EQ(asked.stop_ids, checkpoint().eos_ids);
  EXPECT_NE(tiny_tokenizer().decode(asked.prompt).find("Hi."), std::string::npos);
  scene.generator.say_each(
      0, ids_of("<|channel|>analysis<|message|>Who?<|end|><|start|>assistant<|channel|>final"
                "<|message|>Hello!<|return|>"));
  whole->run();
  EXPECT_EQ(scene.generator.sequences[0].cancelled, 1);
  scene.generator.say(0, {}, FinishReason::cancelled);
  scene.answer("<|channel|>final<|message|>You?<|return|>");
  whole->run();
  ASSERT_EQ(whole->status, 200) << whole->text;
  EXPECT_EQ(whole->header("Content-Type"), "application/json");
  const Json reply = Json::parse(whole->text);
  EXPECT_TRUE(reply["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(reply["model"], "tiny");
  EXPECT_EQ(reply["choices"][0]["message"]["content"], "Hello");
  EXPECT_EQ(reply["choices"][0]["message"]["reasoning"], "Who?");
  EXPECT_EQ(reply["choices"][0]["stop_reason"], "!");
  EXPECT_EQ(reply["choices"][1]["message"]["content"], "You?");
  EXPECT_EQ(reply["usage"]["prompt_tokens"], asked.prompt.size());

  const auto stream = scene.chat(R"(,"stream":true,"stream_options":{"include_usage":true})");
  EXPECT_EQ(scene.generator.sequences.back().request.max_tokens,
            512 - static_cast<int64_t>(scene.generator.sequences.back().request.prompt.size()));
  scene.answer("<|channel|>final<|message|>Hello.<|return|>");
  stream->run();
  EXPECT_EQ(stream->header("Content-Type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(stream->header("Cache-Control"), "no-cache");
  EXPECT_NE(stream->header("X-Request-Id"), "");
  EXPECT_TRUE(stream->ended);
  const auto events = events_of(stream->text);
  EXPECT_EQ(events.front()["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events.back(), "[DONE]");
}

TEST(Api, CompletesEachPromptNTimes) {
  Scene scene;
  const auto whole =
      scene.ask("POST", "/v1/completions", R"({"prompt":["ab","c"],"n":2,"echo":true,"seed":1})");
  auto& sequences = scene.generator.sequences;
  ASSERT_EQ(sequences.size(), 4u) << whole->text;
  EXPECT_EQ(sequences[0].request.max_tokens, 16);
  EXPECT_EQ(sequences[3].request.prompt, ids_of("c"));
  for (size_t i = 0; i < 4; ++i) scene.generator.say_each(i, ids_of(std::to_string(i)), FinishReason::length);
  whole->run();
  const Json reply = Json::parse(whole->text);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(reply["choices"][i]["text"], (i < 2 ? "ab" : "c") + std::to_string(i));
  EXPECT_EQ(reply["usage"]["prompt_tokens"], ids_of("ab").size() + ids_of("c").size());
}

TEST(Api, AnswersResponses) {
  Scene scene;
  const auto stream = scene.ask("POST", "/v1/responses", R"({"input":"Hi.","stream":true})");
  ASSERT_EQ(scene.generator.sequences.size(), 1u) << stream->text;
  scene.answer("<|channel|>final<|message|>Hello.<|return|>");
  stream->run();
  const auto events = events_of(stream->text);
  EXPECT_EQ(events.front()["type"], "response.created");
  EXPECT_EQ(events.back()["type"], "response.completed");
  EXPECT_EQ(events.back()["response"]["output"][0]["content"][0]["text"], "Hello.");
}

TEST(Api, SaysWhyTheEngineRefused) {
  using Reason = engine::Refusal::Reason;
  for (const auto& [reason, status] : {std::pair{Reason::queue_full, 429}, std::pair{Reason::stopping, 503},
                                       std::pair{Reason::too_long, 400}, std::pair{Reason::invalid, 400}}) {
    Scene scene;
    scene.generator.refusal = engine::Refusal{reason, "because"};
    const auto refused      = scene.chat(R"(,"stream":true)");
    EXPECT_EQ(refused->status, status);
    EXPECT_EQ(Json::parse(refused->text)["error"]["message"], "because");
    EXPECT_EQ(refused->header("Retry-After").empty(), status == 400);
  }
  Scene scene;
  const auto refused = scene.chat(R"(,"max_tokens":511)");
  EXPECT_EQ(refused->status, 400);
  EXPECT_EQ(type_of(*refused), "exceed_context_size_error");
  EXPECT_NE(refused->text.find("511"), std::string::npos);
  EXPECT_NE(refused->text.find("512"), std::string::npos);
  const Json error = Json::parse(refused->text)["error"];
  const Json tokenized =
      Json::parse(scene.ask("POST", "/tokenize", R"({"messages":[{"role":"user","content":"Hi."}]})")->text);
  EXPECT_EQ(error["n_prompt_tokens"], tokenized["count"]);
  EXPECT_EQ(error["n_ctx"], 512);
  EXPECT_FALSE(Json::parse(scene.chat(R"(,"max_tokens":0)")->text)["error"].contains("n_ctx"));
}

TEST(Api, AsksForConstraints) {
  Scene scene;
  using Kind         = ConstraintRequest::Kind;
  const auto refused = scene.chat(
      R"(,"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{"type":"object"}}})");
  EXPECT_EQ(refused->status, 400);  // the scene's function always returns an error
  EXPECT_EQ(Json::parse(refused->text)["error"]["message"], "cannot");
  scene.chat(R"(,"response_format":{"type":"json_object"})");
  const std::string tools =
      R"(,"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}])";
  scene.chat(tools + R"(,"tool_choice":"required")");
  scene.chat(tools + R"(,"tool_choice":{"type":"function","function":{"name":"g"}})");
  ASSERT_EQ(scene.constraints.size(), 4u);
  EXPECT_EQ(scene.constraints[0].kind, Kind::json_schema);
  EXPECT_EQ(Json::parse(scene.constraints[0].schema)["type"], "object");
  EXPECT_EQ(scene.constraints[1].kind, Kind::json_object);
  EXPECT_EQ(scene.constraints[2].kind, Kind::tool_call);
  EXPECT_EQ(scene.constraints[2].tools.size(), 2u);
  ASSERT_EQ(scene.constraints[3].tools.size(), 1u);
  EXPECT_EQ(scene.constraints[3].tools[0].name, "g");
  scene.chat(tools);
  EXPECT_EQ(scene.constraints.size(), 4u);
  EXPECT_EQ(scene.generator.sequences.size(), 1u);
}

TEST(Api, LimitsReasoning) {
  Scene scene;
  using Kind = ConstraintRequest::Kind;
  scene.chat(R"(,"response_format":{"type":"json_object"},"max_tokens":100)");
  scene.chat(R"(,"response_format":{"type":"json_object"},"max_tokens":100,"thinking_token_budget":7)");
  scene.chat(R"(,"response_format":{"type":"json_object"},"max_tokens":100,"thinking_token_budget":-1)");
  scene.chat(R"(,"thinking_token_budget":5)");
  scene.ask("POST", "/v1/responses", R"({"input":"Hi.","thinking_token_budget":6,"max_output_tokens":50})");
  ASSERT_EQ(scene.constraints.size(), 5u);
  EXPECT_FALSE(scene.constraints[0].max_reasoning_tokens);
  EXPECT_EQ(scene.constraints[0].max_tokens, 100);
  EXPECT_EQ(scene.constraints[1].max_reasoning_tokens, 7);
  EXPECT_FALSE(scene.constraints[2].max_reasoning_tokens || scene.constraints[2].max_tokens);
  EXPECT_EQ(scene.constraints[3].kind, Kind::text);
  EXPECT_EQ(scene.constraints[3].max_reasoning_tokens, 5);
  EXPECT_EQ(scene.constraints[4].kind, Kind::text);
  EXPECT_EQ(scene.constraints[4].max_reasoning_tokens, 6);
  scene.chat(R"(,"thinking_token_budget":-1)");
  EXPECT_EQ(scene.constraints.size(), 5u);
  const auto text = scene.ask("POST", "/v1/completions", R"({"prompt":"Hi.","thinking_token_budget":6})");
  EXPECT_EQ(text->status, 400);
  EXPECT_EQ(Json::parse(text->text)["error"]["param"], "thinking_token_budget");
}

TEST(Api, CountsWhatHappens) {
  ServeMetrics metrics({.name = "tiny", .max_context = 512, .page_tokens = 16});
  ScriptedGenerator generator;
  Api api({.model_names = {"tiny"}});
  api.ready({.generator = generator, .checkpoint = checkpoint(), .metrics = &metrics});
  const auto ask = [&](std::string method, std::string path, std::string body) {
    auto exchange = std::make_shared<http::FakeExchange>();
    api.handler()({.method = std::move(method), .path = std::move(path), .body = std::move(body)}, exchange);
    return exchange;
  };
  const auto first = ask("POST", "/v1/completions", R"({"prompt":"a","n":2})");
  generator.say_each(0, ids_of("bc"), FinishReason::length);
  generator.say_each(1, ids_of("bc"), FinishReason::length);
  first->run();
  const auto left = ask("POST", "/v1/completions", R"({"prompt":"a","stream":true})");
  left->leave();
  const auto text = ask("GET", "/metrics", "");
  EXPECT_EQ(text->status, 200);
  EXPECT_EQ(text->header("Content-Type"), std::string(ServeMetrics::kContentType));
  const auto has = [&](const std::string& name, const std::string& value) {
    return text->text.find("\n" + name + "{model_name=\"tiny\",engine=\"0\"} " + value + "\n") !=
           std::string::npos;
  };
  EXPECT_TRUE(has("fathom_request_choices_sum", "2"));
  EXPECT_TRUE(has("fathom_request_choices_count", "1"));
  EXPECT_TRUE(has("fathom_request_generated_tokens_sum", "4"));
  EXPECT_TRUE(has("fathom_inter_token_latency_seconds_count", "2"));
  EXPECT_TRUE(has("fathom_client_disconnects_total", "1"));
  EXPECT_EQ(metrics.median_time_to_first_token_s().has_value(), true);
  EXPECT_EQ(generator.sequences[2].cancelled, 1);
}

TEST(Api, TokenizesBothWays) {
  Scene scene;
  const Json tokens = Json::parse(scene.ask("POST", "/tokenize", R"({"prompt":"a é b"})")->text);
  EXPECT_EQ(tokens["tokens"], Json(ids_of("a é b")));
  EXPECT_EQ(tokens["count"], ids_of("a é b").size());
  EXPECT_EQ(tokens["max_model_len"], 512);
  const auto ids       = ids_of("a é b");
  const Json in_pieces = Json::parse(
      scene.ask("POST", "/tokenize", R"({"content":"a é b","with_pieces":true,"return_token_strs":true})")
          ->text);
  std::string bytes;
  bool cut = false;  // "é" has no token of its own
  for (size_t i = 0; i < ids.size(); ++i) {
    const Json& piece = in_pieces["tokens"][i]["piece"];
    EXPECT_EQ(in_pieces["tokens"][i]["id"], ids[i]);
    cut = cut || piece.is_array();
    if (piece.is_string()) {
      EXPECT_EQ(piece, in_pieces["token_strs"][i]);
      bytes += piece.get<std::string>();
    } else {
      for (const Json& byte : piece) bytes += static_cast<char>(byte.get<int>());
    }
  }
  EXPECT_EQ(bytes, "a é b");
  EXPECT_TRUE(cut);
  const Json text =
      Json::parse(scene.ask("POST", "/v1/detokenize", Json{{"tokens", tokens["tokens"]}}.dump())->text);
  EXPECT_EQ(text["prompt"], "a é b");
  EXPECT_EQ(text["content"], "a é b");
  const Json chat =
      Json::parse(scene.ask("POST", "/tokenize", R"({"messages":[{"role":"user","content":"Hi."}]})")->text);
  scene.chat("");
  EXPECT_EQ(chat["tokens"], Json(scene.generator.sequences[0].request.prompt));
}

}  // namespace
}  // namespace fathom::serve
