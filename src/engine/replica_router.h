// Routes requests to replicas of one engine. A policy chooses the replica; a request stays there.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "engine/generator.h"

namespace fathom::engine {

// The router's estimate of a replica's prefix cache: an LRU cache of the blocks routed there. A wrong
// estimate costs time but does not change answers.
class ApproxPrefixCache {
 public:
  explicit ApproxPrefixCache(int64_t blocks) : capacity_(blocks) {}

  // The number of leading blocks that are cached. A block is a hash of its tokens and all tokens before it.
  int64_t match(const std::vector<uint64_t>& blocks) const;
  void insert(const std::vector<uint64_t>& blocks);

 private:
  int64_t capacity_;
  std::list<uint64_t> lru_;  // most recently used first
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> entries_;
};

// Hashes of the full blocks of a prompt, without the one that has the last token, which is always computed.
std::vector<uint64_t> prompt_blocks(const Request& request, int64_t page_size);

class ReplicaRouter final : public Generator {
 public:
  enum class Policy {
    round_robin,
    least_cost,  // the replica with the least work before this request's first token
  };
  struct Options {
    Policy policy = Policy::least_cost;

    // For least_cost. Work is counted in prompt tokens; cached ones are free. The length of an output is
    // estimated as the mean so far, at most max_tokens.
    double token_cost    = 4;      // work of one output token: few sequences share its step
    int64_t page_size    = 16;     // tokens of a block of the replicas' prefix caches
    int64_t cache_tokens = 32768;  // size of a replica's prefix cache
    // A replica with more work than close_above gets no requests until it has less than open_below, unless
    // all replicas are closed. Two thresholds give hysteresis.
    double close_above = 16384, open_below = 8192;
  };

  // At least one replica.
  ReplicaRouter(std::vector<std::unique_ptr<Generator>> replicas, const Options& options);

  // Returns the refusal of the chosen replica.
  std::variant<RequestId, Refusal> submit(Request request, Listener listener) override;
  void cancel(RequestId id, FinishReason reason = FinishReason::cancelled) override;
  GeneratorStats stats() const override;  // summed over the replicas
  int64_t max_context() const override;   // the smallest of the replicas
  bool drain(std::chrono::nanoseconds timeout) override;

  // Number of requests routed to each replica.
  std::vector<int64_t> routed() const;

 private:
  struct Replica {
    ApproxPrefixCache prefixes;
    double work    = 0;  // remaining work of its requests
    int64_t routed = 0;
    bool closed    = false;
  };
  struct Routed {
    size_t replica   = 0;
    RequestId id     = 0;  // the replica's
    double prompt    = 0;  // remaining work before the first token
    double answer    = 0;  // remaining work after it
    int64_t answered = 0;  // output tokens so far
  };

  size_t cheapest(const std::vector<uint64_t>& blocks) const;
  void update(RequestId id, const RequestOutput& progress);
  void change_work(Replica& replica, double by) const;

  const Options options_;
  mutable std::mutex mutex_;
  // Under mutex_.
  std::vector<Replica> states_;
  std::unordered_map<RequestId, Routed> routed_;
  RequestId next_id_    = 1;
  double answers_       = 0;  // finished ones
  double answer_tokens_ = 0;  // tokens of these
  // Declared last, so destroyed first: the replicas' listeners use the members above.
  std::vector<std::unique_ptr<Generator>> replicas_;
};

}  // namespace fathom::engine
