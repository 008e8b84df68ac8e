// The sequences of one HTTP request, from submission to the last byte of the reply.
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
#include "model/tokenizer.h"
#include "serve/answer_text.h"
#include "serve/http.h"
#include "serve/metrics.h"
#include "serve/reply.h"

namespace fathom::serve {

// The engine tells of tokens on its own thread, where they are only copied; the connection's executor makes
// text of them, of all that came since it last ran in one go. A choice that met a stop string is cancelled,
// and ends when the engine has let it go; when the client goes, all are.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  struct Choice {
    engine::Request request;
    AnswerText::Options text;
    bool own_prompt = true;  // otherwise that of the choice before: it counts once in the usage
  };
  struct Delivery {
    bool stream                             = false;  // events, or one body
    std::chrono::milliseconds ping_interval = {};     // of events; 0: a stream may be silent for ever
  };

  // Submits all choices and begins the reply, on the connection's executor. After a refusal nothing was
  // written, and what had been submitted is cancelled. Generator, tokenizer and metrics (which may be null)
  // must outlive the exchange.
  static std::optional<engine::Refusal> start(engine::Generator& generator, const model::Tokenizer& tokenizer,
                                              std::shared_ptr<HttpExchange> exchange,
                                              std::unique_ptr<Reply> reply, Delivery delivery,
                                              std::vector<Choice> choices, ServeMetrics* metrics);

 private:
  // What came to a choice since the executor last looked.
  struct Arrival {
    std::vector<engine::Sampled> tokens;
    std::optional<engine::FinishReason> finish;
    std::string error;
    int64_t cached_tokens      = 0;
    engine::RequestTimes times = {};
  };
  struct Running {
    AnswerText text;
    int64_t prompt_tokens = 0, max_tokens = 0;
    bool own_prompt          = true;
    engine::RequestId id     = 0;
    bool running             = false;  // submitted, not cancelled and not ended
    int64_t cached_tokens    = 0;
    int64_t generated_tokens = 0;  // by the engine, those after a stop string too
  };

  Generation(engine::Generator& generator, std::shared_ptr<HttpExchange> exchange,
             std::unique_ptr<Reply> reply, bool stream, ServeMetrics* metrics)
      : generator_(generator),
        exchange_(std::move(exchange)),
        reply_(std::move(reply)),
        stream_(stream),
        metrics_(metrics) {}

  std::optional<engine::Refusal> submit(const model::Tokenizer& tokenizer, std::vector<Choice> choices);
  void heard(size_t choice, const engine::Progress& progress);  // on the engine's thread
  void deliver();
  std::string deliver(size_t choice, Arrival& arrival);
  void ended(size_t choice, const Arrival& arrival);
  void cancel(Running& choice);
  void cancel_all();

  engine::Generator& generator_;
  const std::shared_ptr<HttpExchange> exchange_;
  const std::unique_ptr<Reply> reply_;
  const bool stream_;
  ServeMetrics* const metrics_;

  // Of the executor.
  std::vector<Running> choices_;
  size_t left_ = 0;                     // that the engine has not ended
  bool silent_ = false;                 // nothing more is to be written
  std::optional<std::string> failure_;  // of the engine, not told yet
  Usage usage_;
  int64_t longest_tokens_        = 0;
  engine::TimePoint scheduled_   = engine::TimePoint::max(),
                    first_token_ = engine::TimePoint::max();                                      // earliest
  engine::TimePoint prefilled_ = engine::TimePoint::min(), finished_ = engine::TimePoint::min();  // latest

  std::vector<TokenGaps> gaps_;  // by choice; of the engine's thread until a choice's last call

  std::mutex mutex_;
  std::vector<Arrival> arrivals_;  // by choice
  bool posted_ = false;            // deliver() will run
};

}  // namespace fathom::serve
