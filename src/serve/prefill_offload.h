// The engine of a decode worker. The prompts of its requests are computed here, or, where they are long, by a
// prefill worker, whose blocks of keys and values land in this engine's prefix cache.
//
// A prefill worker that refuses, dies or hangs costs a lease and changes no token: the prompt is computed
// here.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/result.h"
#include "engine/engine.h"
#include "engine/generator.h"
#include "http/client.h"
#include "serve/held_requests.h"
#include "serve/worker_protocol.h"
#include "transfer/landing.h"
#include "transfer/socket_transfer.h"

namespace fathom::serve {

// Counters since the start.
struct OffloadStats {
  int64_t asked         = 0;  // prompts that a prefill worker was asked for
  int64_t landed        = 0;  // of these: its blocks came, and were used
  int64_t blocks        = 0;  // of these
  int64_t failed        = 0;  // refused, died, hung, or no pages were left: computed here
  int64_t landing_pages = 0, landing_pages_free = 0, landing_pages_quarantined = 0;  // gauges
};

class PrefillOffload final : public engine::Generator {
 public:
  struct Options {
    std::vector<http::Url> peers;  // prefill workers, until ask_only()
    std::string api_key;           // theirs
    std::string layout;            // PrefillRequest::layout
    std::string host   = "127.0.0.1";
    bool shared_memory = false;  // blocks go by shared memory: all are on one host
    // A prompt is offloaded where at least so many of its tokens are not cached here (and the prefill worker
    // has fewer than kMaxPrefillJobs), unless its Request::do_remote_prefill says it.
    int64_t min_uncached_tokens = 256;
    std::chrono::milliseconds lease{2'000};
    // A worker that failed is not asked again for so long.
    std::chrono::milliseconds inhibition{2'000};
  };
  // `engine` must outlive it. Fails where its device cannot take blocks, or nothing can be listened on.
  static Result<std::unique_ptr<PrefillOffload>> start(engine::Engine& engine, const Options& options);
  ~PrefillOffload() override;

  std::variant<engine::RequestId, engine::Refusal> submit(engine::Request request,
                                                          engine::Listener listener) override;
  void cancel(engine::RequestId id, engine::FinishReason reason = engine::FinishReason::cancelled) override;
  engine::GeneratorStats stats() const override;
  int64_t max_context() const override { return engine_.max_context(); }
  bool drain(std::chrono::nanoseconds timeout) override;

  // The prefill workers from now on. Those asked before may still answer.
  Status ask_only(const std::vector<http::Url>& peers);
  std::vector<std::string> peers() const;  // their addresses

  OffloadStats offload_stats() const;

 private:
  struct Peer {
    std::string address;
    std::unique_ptr<http::Client> client;
    engine::TimePoint inhibited_until;
    bool asked = true;  // false: it was a prefill worker
  };
  // A request that is, or was, considered for offloading.
  struct Offloaded : HeldRequests::Held {
    std::vector<model::TokenId> tokens;  // prompt and answer so far
    size_t peer = 0;
    transfer::Grant grant;  // under mutex_
    std::vector<engine::KvBlock> blocks;
  };
  using OffloadedPtr = std::shared_ptr<Offloaded>;

  PrefillOffload(engine::Engine& engine, const Options& options);
  int64_t least_uncached(const engine::Request& request) const;
  void consider(const OffloadedPtr& one, engine::KvStore& store);
  bool ask(const OffloadedPtr& one);
  void landed(const OffloadedPtr& one, transfer::Outcome outcome);
  void use_blocks(Offloaded& one, engine::KvStore& store);
  void revoke(const Offloaded& one);

  engine::Engine& engine_;
  const Options options_;
  transfer::Landing landing_;
  std::shared_ptr<void> pinned_;  // its memory, for copies to a GPU
  std::unique_ptr<transfer::LandingServer> server_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_.
  std::vector<Peer> peers_;
  size_t next_peer_ = 0;
  OffloadStats stats_;
  int64_t read_ = 0;  // transfers whose blocks the engine still reads

  HeldRequests held_;
};

}  // namespace fathom::serve
