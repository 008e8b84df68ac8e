// What answers requests with tokens, seen from outside: an engine, or a router in front of several. The
// server and the load generator know nothing more.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/constraint.h"
#include "engine/sampler.h"
#include "model/tokenizer.h"

namespace fathom::engine {

using RequestId = uint64_t;
using TimePoint = std::chrono::steady_clock::time_point;

struct Request {
  std::vector<model::TokenId> prompt;  // at least one, all in the vocabulary
  SamplingParameters sampling;
  int64_t max_tokens = 16;                 // at least one; prompt and these fit in the context
  int64_t min_tokens = 0;                  // before which none of stop_ids is chosen
  std::vector<model::TokenId> stop_ids;    // the answer ends with the first of these, and includes it
  int priority = 0;                        // lower goes first
  std::string cache_salt;                  // prefixes are shared among requests of equal salt only
  std::unique_ptr<Constraint> constraint;  // none: every token may come
};

enum class FinishReason { stop, length, cancelled, error };
inline constexpr int kFinishReasons = 4;
std::string_view name_of(FinishReason reason);  // "stop", "length", "abort", "error"

// When a request came how far. Queued: received .. scheduled; prefill: .. first_token; decode: .. finished.
struct RequestTimes {
  TimePoint received, scheduled, first_token, finished;
};

// What one step brought to one request.
struct Progress {
  std::span<const Sampled> tokens;      // new ones, in order; more than one where drafts were right
  std::optional<FinishReason> finish;   // set in the last call
  std::string_view error;               // of FinishReason::error, one sentence
  int64_t cached_tokens = 0;            // of the prompt, that were not computed anew
  int64_t drafted = 0, accepted = 0;    // tokens so far, by speculation
  const RequestTimes* times = nullptr;  // of the last call; those not reached are equal to `finished`
};

// Called on the engine's thread, once for each step that brought something, in order, and a last time with
// `finish`, always. It must not throw, must not block, and may call submit() and cancel().
using Listener = std::function<void(const Progress&)>;

// Why a request was not taken on.
struct Refusal {
  enum class Reason {
    invalid,     // empty prompt, ids beyond the vocabulary, parameters that mean nothing
    too_long,    // prompt and max_tokens are more than the context, or than all pages
    queue_full,  // come back later
    stopping,    // draining or stopped
  };
  Reason reason;
  std::string message;  // one sentence
};

// Steps are counted by their rows, up to each of these and beyond the one before.
inline constexpr std::array<int64_t, 13> kStepRowBounds = {1,   8,    16,   32,   64,   128,  256,
                                                           512, 1024, 2048, 4096, 8192, 16384};

// Counters since the start, and gauges of this moment.
struct GeneratorStats {
  // Gauges.
  int64_t running = 0, waiting = 0, waiting_tokens = 0;  // requests; prompt tokens of the waiting
  int64_t pages = 0, pages_in_use = 0;                   // of both groups; cached ones nobody uses are free
  // Counters. Those of prompts grow once a request, together, when it first begins to run.
  int64_t prompt_tokens = 0, generated_tokens = 0;
  int64_t prefix_queried_tokens = 0, prefix_hit_tokens = 0;
  int64_t preemptions = 0, steps = 0, step_rows = 0;
  std::array<int64_t, kStepRowBounds.size() + 1> steps_by_rows{};  // the last: beyond all bounds
  int64_t graphs = 0;  // captured on a GPU, before the first request and since
  int64_t drafts = 0, drafted_tokens = 0, accepted_tokens = 0;
  std::array<int64_t, 16> accepted_at{};               // drafted tokens accepted, by place in their draft
  std::array<int64_t, kFinishReasons> finished{};      // requests, by reason
  double schedule_s = 0, forward_s = 0, sample_s = 0;  // where the engine's time went
};

class Generator {
 public:
  virtual ~Generator() = default;

  // From any thread. After an id, the listener will be told of everything up to the end; after a refusal it
  // is not called.
  virtual std::variant<RequestId, Refusal> submit(Request request, Listener listener) = 0;
  // From any thread; the request ends within a step, for that reason, unless it ends before. Who has found a
  // stop string in the text says FinishReason::stop.
  virtual void cancel(RequestId id, FinishReason reason = FinishReason::cancelled) = 0;
  virtual GeneratorStats stats() const                                             = 0;
  virtual int64_t max_context() const                                              = 0;

  // Refuses new requests from now on and returns when none is left, or false when `timeout` came first.
  virtual bool drain(std::chrono::nanoseconds timeout) = 0;
};

}  // namespace fathom::engine
