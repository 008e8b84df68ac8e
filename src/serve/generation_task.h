// Runs the choices of one API request, from submission to the engine to the last byte of the response.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/generator.h"
#include "http/http.h"
#include "model/tokenizer.h"
#include "serve/metrics.h"
#include "serve/output_parser.h"
#include "serve/response_writer.h"

namespace fathom::serve {

// The engine's thread reports tokens, and on_progress() only copies them. deliver() runs on the connection's
// strand; it formats all tokens that arrived since its last run. A choice that meets a stop string is
// cancelled and ends when the engine reports its end. When the client leaves, all choices are cancelled.
class GenerationTask : public std::enable_shared_from_this<GenerationTask> {
 public:
  struct Choice {
    engine::Request request;
    OutputParser::Options parser;
    bool own_prompt = true;  // false: the same prompt as the choice before, counted once in the usage
  };
  struct Delivery {
    bool stream                             = false;  // server-sent events; otherwise one body
    std::chrono::milliseconds ping_interval = {};     // of streams; 0: no pings
  };

  // Submits all choices and begins the response, on the connection's strand. A refusal cancels the choices
  // submitted so far and writes nothing. Generator, tokenizer and metrics (may be null) must outlive the
  // exchange.
  static std::optional<engine::Refusal> start(engine::Generator& generator, const model::Tokenizer& tokenizer,
                                              std::shared_ptr<http::Exchange> exchange,
                                              std::unique_ptr<ResponseWriter> writer, Delivery delivery,
                                              std::vector<Choice> choices, ServeMetrics* metrics);

 private:
  // Output of one choice since deliver() last ran.
  struct Arrival {
    std::vector<engine::Sampled> tokens;
    std::optional<engine::FinishReason> finish;
    std::string error;
    int64_t cached_tokens      = 0;
    std::string weight_version = {};
    engine::RequestTimes times = {};
  };
  struct ActiveChoice {
    OutputParser parser;
    int64_t prompt_tokens = 0, max_tokens = 0;
    bool own_prompt          = true;
    engine::RequestId id     = 0;
    bool running             = false;  // submitted, not cancelled and not ended
    int64_t cached_tokens    = 0;
    int64_t generated_tokens = 0;  // by the engine, including those after a stop string
  };

  GenerationTask(engine::Generator& generator, std::shared_ptr<http::Exchange> exchange,
                 std::unique_ptr<ResponseWriter> writer, bool stream, ServeMetrics* metrics)
      : generator_(generator),
        exchange_(std::move(exchange)),
        writer_(std::move(writer)),
        stream_(stream),
        metrics_(metrics) {}

  std::optional<engine::Refusal> submit(const model::Tokenizer& tokenizer, std::vector<Choice> choices);
  void on_progress(size_t choice, const engine::RequestOutput& progress);  // on the engine's thread
  void deliver();
  std::string deliver(size_t choice, Arrival& arrival);
  void on_finished(size_t choice, const Arrival& arrival);
  void cancel(ActiveChoice& choice);
  void cancel_all();

  engine::Generator& generator_;
  const std::shared_ptr<http::Exchange> exchange_;
  const std::unique_ptr<ResponseWriter> writer_;
  const bool stream_;
  ServeMetrics* const metrics_;

  // Used on the strand only.
  std::vector<ActiveChoice> choices_;
  size_t unfinished_ = 0;               // choices that the engine has not ended
  bool done_         = false;           // the response has ended: nothing more is written
  std::optional<std::string> failure_;  // the engine's error, not yet written
  Usage usage_;
  int64_t longest_tokens_        = 0;
  engine::TimePoint scheduled_   = engine::TimePoint::max(),
                    first_token_ = engine::TimePoint::max();                                      // earliest
  engine::TimePoint prefilled_ = engine::TimePoint::min(), finished_ = engine::TimePoint::min();  // latest

  std::vector<TokenGaps> gaps_;  // by choice; used on the engine's thread until the choice ends

  std::mutex mutex_;
  std::vector<Arrival> arrivals_;  // by choice
  bool posted_ = false;            // deliver() is posted
};

}  // namespace fathom::serve
