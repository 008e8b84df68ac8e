// For tests: an engine whose output the test scripts.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/generator.h"

namespace fathom::serve {

class ScriptedGenerator : public engine::Generator {
 public:
  struct Sequence {
    engine::Request request;
    engine::Listener listener;
    int cancelled = 0;
    bool ended    = false;
  };

  std::variant<engine::RequestId, engine::Refusal> submit(engine::Request request,
                                                          engine::Listener listener) override {
    if (refusal && sequences.size() >= accepts) return *refusal;
    sequences.push_back({.request = std::move(request), .listener = std::move(listener)});
    return engine::RequestId{100 + sequences.size() - 1};
  }
  void cancel(engine::RequestId id, engine::FinishReason) override { ++sequences.at(id - 100).cancelled; }
  engine::GeneratorStats stats() const override {
    return {.running = 3, .pages = 10, .memory = {.weights = 100, .kv_cache = 20, .workspace = 3}};
  }
  int64_t max_context() const override { return 512; }
  bool drain(std::chrono::nanoseconds) override { return true; }

  // One step of one sequence. The last step reports 1 ms in the queue, 2 ms of prefill and 4 ms of decode.
  void say(size_t sequence, std::span<const engine::Sampled> tokens,
           std::optional<engine::FinishReason> finish = std::nullopt, std::string_view error = "") {
    Sequence& to      = sequences.at(sequence);
    const auto millis = [](int n) { return engine::TimePoint(std::chrono::milliseconds(n)); };
    const engine::RequestTimes times{
        .received = millis(10), .scheduled = millis(11), .first_token = millis(13), .finished = millis(17)};
    to.ended = finish.has_value();
    to.listener({.tokens        = tokens,
                 .finish        = finish,
                 .error         = error,
                 .cached_tokens = cached_tokens,
                 .times         = finish ? &times : nullptr});
    if (to.ended) to.listener = nullptr;
  }
  // One token for each step. If a reason is given, the last token ends the sequence.
  void say_each(size_t sequence, std::span<const model::TokenId> ids,
                std::optional<engine::FinishReason> finish = std::nullopt) {
    for (size_t i = 0; i < ids.size(); ++i) {
      const engine::Sampled sampled{.id = ids[i]};
      say(sequence, {&sampled, 1}, i + 1 == ids.size() ? finish : std::nullopt);
    }
  }

  std::vector<Sequence> sequences;
  std::optional<engine::Refusal> refusal;  // for every request after the first `accepts`
  size_t accepts        = 0;
  int64_t cached_tokens = 0;
};

}  // namespace fathom::serve
