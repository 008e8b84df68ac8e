// A generator in front of several that would all answer the same: replicas of one engine. Each request goes
// to one of them and stays there; a policy says to which.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "engine/generator.h"

namespace fathom::engine {

// What a replica's prefix cache is believed to hold: blocks that went there, those not used for longest
// forgotten first. A wrong belief costs time, not answers.
class PrefixMemory {
 public:
  explicit PrefixMemory(int64_t blocks) : most_(blocks) {}

  // How many of the first blocks, each named by a hash of it and all before it, are there.
  int64_t known(const std::vector<uint64_t>& blocks) const;
  void remember(const std::vector<uint64_t>& blocks);

 private:
  int64_t most_;
  std::list<uint64_t> by_use_;  // the latest first
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> places_;
};

class Router final : public Generator {
 public:
  enum class Policy {
    round_robin,  // the next one in turn, whatever it has to do
    least_cost,   // where all that is to be computed before this request's first token is least
  };
  struct Options {
    Policy policy = Policy::least_cost;

    // Of least_cost. Work is counted in rows of a prompt; what is believed to be cached is none. An answer is
    // taken to become as long as answers have been so far, or max_tokens where that is less.
    double token_cost    = 4;      // of a token of an answer, in rows: its step is shared by few
    int64_t page_size    = 16;     // tokens, by which replicas share prefixes
    int64_t cache_tokens = 32768;  // of a replica's prefix cache
    // A replica with more work than the one gets no request before it has less than the other, unless all are
    // like that. Two marks, so that it is not opened and closed by single requests.
    double close_above = 16384, open_below = 8192;
  };

  // At least one replica.
  Router(std::vector<std::unique_ptr<Generator>> replicas, const Options& options);

  // A refusal is that of the replica it was meant for.
  std::variant<RequestId, Refusal> submit(Request request, Listener listener) override;
  void cancel(RequestId id, FinishReason reason = FinishReason::cancelled) override;
  GeneratorStats stats() const override;  // of all replicas together
  int64_t max_context() const override;   // of the one with least
  bool drain(std::chrono::nanoseconds timeout) override;

  // Requests that each replica got.
  std::vector<int64_t> routed() const;

 private:
  struct Replica {
    PrefixMemory prefixes;
    double work    = 0;  // of its requests, that is left
    int64_t routed = 0;
    bool closed    = false;
  };
  struct Routed {
    size_t replica   = 0;
    RequestId id     = 0;  // the replica's
    double prompt    = 0;  // work until the first token
    double answer    = 0;  // and from then on
    int64_t answered = 0;  // tokens
  };

  std::vector<uint64_t> blocks_of(const Request& request) const;
  size_t cheapest(const std::vector<uint64_t>& blocks) const;
  void note(RequestId id, const Progress& progress);
  void change_work(Replica& replica, double by) const;

  const Options options_;
  mutable std::mutex mutex_;
  // Under mutex_.
  std::vector<Replica> states_;
  std::unordered_map<RequestId, Routed> routed_;
  RequestId next_id_    = 1;
  double answers_       = 0;  // that have ended, and
  double answer_tokens_ = 0;  // their tokens
  // Last, so that they end first: their listeners use the rest.
  std::vector<std::unique_ptr<Generator>> replicas_;
};

}  // namespace fathom::engine
