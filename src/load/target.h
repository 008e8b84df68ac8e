// The target of a load test: a server with OpenAI's API, or an engine in this process.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generator.h"
#include "engine/sampler.h"
#include "http/client.h"
#include "http/sse_reader.h"
#include "load/workload.h"

namespace fathom::load {

using Clock = std::chrono::steady_clock;

struct ResponseEnd {
  std::string error;                                   // "": the response is complete
  std::optional<int64_t> input_tokens, output_tokens;  // none where the target does not count them
};

// Receives one response, in order and one call at a time, on the target's threads. The functions must not
// throw or block.
struct ResponseListener {
  std::function<void(Clock::time_point at)> content;  // a chunk with content has arrived
  std::function<void(Clock::time_point at, const ResponseEnd& end)> end;
};

class Target {
 public:
  virtual ~Target() = default;

  // Returns at once. Every failure is an end with an error.
  virtual void send(const Request& request, ResponseListener listener) = 0;
  // Drops all responses in flight. No listener is called after it returns, and nothing can be sent any more.
  virtual void abandon() = 0;
};

struct OpenAiOptions {
  std::string endpoint = "/v1/completions";  // a chat endpoint where it ends in /chat/completions
  std::string model;
  std::string api_key;  // "": none
  bool ignore_eos = false;
  std::optional<double> temperature;  // none: the server's default
  std::chrono::nanoseconds timeout = std::chrono::hours(6);
};

// Prompts of token ids need the completions endpoint.
std::unique_ptr<Target> openai_target(http::Client& client, OpenAiOptions options);

// Reads one streamed response. A chunk has content where it has text, or a message's content, reasoning or
// tool calls; a response without any counts the chunk with finish_reason. The stream is complete where it
// ended after [DONE] or a finish_reason. An event with "error" makes it a failure.
class OpenAiResponse {
 public:
  explicit OpenAiResponse(ResponseListener listener) : listener_(std::move(listener)) {}

  void status(int status) { status_ = status; }
  void body(Clock::time_point at, std::string_view piece);
  void end(Clock::time_point at, std::string error);  // `error` of the connection

 private:
  void event(Clock::time_point at, std::string_view data);

  ResponseListener listener_;
  http::SseReader reader_;
  int status_ = 0;
  std::string error_body_;  // the beginning of an error body
  std::string error_;
  bool finished_  = false;
  int64_t chunks_ = 0;
  ResponseEnd counted_;
};

// The message in a server's error body, or the beginning of the body.
std::string message_of(const std::string& body);
// The first id of GET /v1/models. An error says what the server answered instead.
Result<std::string> first_model(http::Client& client, const std::string& api_key);

struct EngineOptions {
  engine::SamplingParameters sampling{.temperature = 0};  // request i adds i to the seed
  std::vector<model::TokenId> stop_ids;                   // none: every response has its full length
};

// Prompts must be token ids.
std::unique_ptr<Target> engine_target(engine::Generator& generator, EngineOptions options);

}  // namespace fathom::load
