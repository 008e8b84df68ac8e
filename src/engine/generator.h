// The interface of an engine, or of a router in front of several: requests in, tokens out. The server and the
// load generator use nothing else.
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
#include "engine/eplb_stats.h"
#include "engine/kv_block.h"
#include "engine/memory_use.h"
#include "engine/sampler.h"
#include "model/tokenizer.h"

namespace fathom::engine {

using RequestId = uint64_t;
using TimePoint = std::chrono::steady_clock::time_point;

struct Request {
  std::vector<model::TokenId> prompt;  // at least one, all in the vocabulary
  SamplingParameters sampling;
  int64_t max_tokens = 16;                 // at least one; prompt and output must fit in the context
  int64_t min_tokens = 0;                  // stop_ids are banned before that many output tokens
  std::vector<model::TokenId> stop_ids;    // the output ends with the first of these, which it includes
  int priority = 0;                        // lower goes first
  std::string cache_salt;                  // cached prefixes are shared among requests of equal salt only
  std::unique_ptr<Constraint> constraint;  // null: every token is allowed
  std::string adapter = {};                // one of EngineConfig::lora_modules; "": the model itself
  // The answer so far, of an earlier attempt: it goes on from there, as if this engine had written it. Counts
  // in max_tokens and min_tokens; a constraint has accepted it.
  std::vector<model::TokenId> resumed = {};
  // So many tokens of the prompt, at most, are in this engine's cache because another worker's blocks were
  // put there (Engine::with_kv) for this request. For the counters only.
  int64_t received_tokens = 0;
  // Where prefill workers could compute the prompt (serve/prefill_offload.h): whether one shall. None: that
  // rule decides.
  std::optional<bool> do_remote_prefill = {};
  // Called on the engine's thread for every block of the prompt that a prefix cache can hold, once, when it
  // is final. It must not throw or block, and may keep the bytes with their owner. Null: nobody wants them.
  KvBlockListener on_kv_block = {};
};

enum class FinishReason { stop, length, cancelled, error };
inline constexpr int kFinishReasons = 4;
std::string_view name_of(FinishReason reason);  // "stop", "length", "abort", "error"

// Milestones of a request. Queued: received .. scheduled; prefill: .. first_token; decode: .. finished.
struct RequestTimes {
  TimePoint received, scheduled, first_token, finished;
};

// The result of one step for one request.
struct RequestOutput {
  std::span<const Sampled> tokens;            // new ones, in order; more than one where drafts were accepted
  std::optional<FinishReason> finish;         // set in the last call
  std::string_view error;                     // one sentence, with FinishReason::error
  int64_t cached_tokens = 0;                  // prompt tokens found in the prefix cache
  int64_t drafted = 0, accepted = 0;          // draft tokens so far
  const RequestTimes* times       = nullptr;  // set in the last call; milestones not reached equal `finished`
  std::string_view weight_version = {};       // of the weights that `tokens` are of; "" where nobody knows
};

// Called on the engine's thread, in order, once for each step that yields tokens, and always a last time with
// `finish`. It must not throw or block, and may call submit() and cancel().
using Listener = std::function<void(const RequestOutput&)>;

// Why a request was refused.
struct Refusal {
  enum class Reason {
    invalid,     // empty prompt, ids outside the vocabulary, invalid parameters
    too_long,    // prompt and max_tokens exceed the context, or all pages
    queue_full,  // retry later
    stopping,    // draining or stopped
  };
  Reason reason;
  std::string message;  // one sentence
};

// Upper bounds of the buckets in which steps are counted by rows.
inline constexpr std::array<int64_t, 13> kStepRowBounds = {1,   8,    16,   32,   64,   128,  256,
                                                           512, 1024, 2048, 4096, 8192, 16384};

// What an engine may change while it runs (EngineConfig::adaptive), in this order.
inline constexpr std::array<std::string_view, 4> kSettingNames = {"default", "half_drafts", "drafts",
                                                                  "small_steps"};

// Counters since the start, and gauges of the moment.
struct GeneratorStats {
  // Gauges.
  int64_t running = 0, waiting = 0, waiting_tokens = 0;  // requests; prompt tokens of the waiting
  int64_t pages = 0, pages_in_use = 0;  // of all kinds of layers; unused cached pages are free
  // How long the engine has had work and ended no step: 0 while it is idle. Of several replicas the longest.
  double stalled_s = 0;
  // Counters. Those of prompts grow together, once a request, when it is first admitted.
  int64_t prompt_tokens = 0, generated_tokens = 0;
  int64_t prefix_queried_tokens = 0, prefix_hit_tokens = 0;
  int64_t received_hit_tokens = 0;  // of these hits: Request::received_tokens
  int64_t preemptions = 0, steps = 0, step_rows = 0;
  // Of memory_pressure.h: times that admission closed, steps that kept a request waiting for it, and pages
  // whose cached prefix was forgotten.
  int64_t admission_holds = 0, held_steps = 0, forgotten_pages = 0;
  int64_t setting_changes = 0;
  std::array<double, kSettingNames.size()> setting_s{};  // time of steps under each; 0 unless adaptive
  std::array<int64_t, kStepRowBounds.size() + 1> steps_by_rows{};  // the last bucket has no bound
  int64_t graphs          = 0;                                     // CUDA graphs captured, at start and since
  int64_t graph_fallbacks = 0;  // runs of steps, or of their pieces, whose graph could not be captured
  int64_t drafts = 0, drafted_tokens = 0, accepted_tokens = 0;
  std::array<int64_t, 16> accepted_at{};               // accepted draft tokens, by position in the draft
  std::array<int64_t, kFinishReasons> finished{};      // requests, by reason
  double schedule_s = 0, forward_s = 0, sample_s = 0;  // the engine's time by phase
  MemoryUse memory;                                    // of several replicas the sum
  std::string weight_version;                          // "" where nobody knows, as of several replicas
  int64_t weight_updates = 0;
  // Of all tokens so far (router_imbalance.h), of the most uneven replica. None where the router does not
  // count, as on a GPU, and before the first token.
  std::optional<double> router_imbalance;
  std::optional<double> rank_imbalance;  // of expert-parallel ranks; else none
  std::optional<EplbStats> eplb;  // where experts move; of several replicas sums and the least balanced
};

class Generator {
 public:
  virtual ~Generator() = default;

  // From any thread. If it returns an id, the listener is called until the request ends; after a refusal it
  // is never called.
  virtual std::variant<RequestId, Refusal> submit(Request request, Listener listener) = 0;
  // From any thread. The request ends within a step with that reason, unless it ends before. Pass
  // FinishReason::stop where a stop string was found in the text.
  virtual void cancel(RequestId id, FinishReason reason = FinishReason::cancelled) = 0;
  virtual GeneratorStats stats() const                                             = 0;
  virtual int64_t max_context() const                                              = 0;

  // Refuses new requests from now on. Returns true when no request is left, false at `timeout`.
  virtual bool drain(std::chrono::nanoseconds timeout) = 0;
};

}  // namespace fathom::engine
