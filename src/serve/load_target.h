// Whom a load test asks: a server that speaks OpenAI's API, or an engine in this process.
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
#include "serve/http_client.h"
#include "serve/sse_reader.h"
#include "serve/workload.h"

namespace fathom::serve {

using LoadClock = std::chrono::steady_clock;

struct AnswerEnd {
  std::string error;                                   // "": the answer is whole
  std::optional<int64_t> input_tokens, output_tokens;  // where the target counts them
};

// Told of one answer, in order and one at a time, on threads of the target. No function may throw or block.
struct AnswerListener {
  std::function<void(LoadClock::time_point at)> content;  // a chunk that is not empty
  std::function<void(LoadClock::time_point at, const AnswerEnd& end)> end;
};

class LoadTarget {
 public:
  virtual ~LoadTarget() = default;

  // Returns at once. Failures of any kind are ends with an error.
  virtual void send(const LoadRequest& request, AnswerListener listener) = 0;
  // Drops all answers under way; no listener is called after it returns, and nothing can be sent any more.
  virtual void abandon() = 0;
};

struct OpenAiOptions {
  std::string endpoint = "/v1/completions";  // chat where it ends in /chat/completions
  std::string model;
  std::string api_key;  // "": none
  bool ignore_eos = false;
  std::optional<double> temperature;  // none: the server's own
  std::chrono::nanoseconds timeout = std::chrono::hours(6);
};

// Prompts of ids need the completions endpoint.
std::unique_ptr<LoadTarget> openai_target(HttpClient& client, OpenAiOptions options);

// Reads the answer of one streamed request. Content is text, a message's content, reasoning or tool calls;
// where an answer shows none at all, what carries finish_reason. The stream is whole when it ended after
// [DONE] or a finish_reason; an event with "error" is its failure.
class OpenAiAnswer {
 public:
  explicit OpenAiAnswer(AnswerListener listener) : listener_(std::move(listener)) {}

  void status(int status) { status_ = status; }
  void body(LoadClock::time_point at, std::string_view piece);
  void end(LoadClock::time_point at, std::string error);  // of the connection

 private:
  void event(LoadClock::time_point at, std::string_view data);

  AnswerListener listener_;
  SseReader reader_;
  int status_ = 0;
  std::string refusal_;  // the beginning of a body that is no stream
  std::string error_;
  bool finished_  = false;
  int64_t chunks_ = 0;
  AnswerEnd counted_;
};

// The id that GET /v1/models lists first; an error says what came instead.
Result<std::string> first_model(HttpClient& client, const std::string& api_key);

struct EngineOptions {
  engine::SamplingParameters sampling{.temperature = 0};  // each request gets the seed, plus its number
  std::vector<model::TokenId> stop_ids;                   // none: answers run to their length
};

// Prompts are ids.
std::unique_ptr<LoadTarget> engine_target(engine::Generator& generator, EngineOptions options);

}  // namespace fathom::serve
