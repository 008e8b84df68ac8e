// A worker's connection to a KV cache pool (`--kv-pool`). Requests whose prompts' blocks are in the pool take
// them from there before the engine sees them; blocks that the engine computed go there afterwards.
//
// Serving never depends on the pool: a lookup that is not answered within `deadline` ends, the prompt is
// computed here, and the pool is not asked again before it answers a question in the background. What is
// written waits in a bounded queue; prompts beyond it are not written.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/result.h"
#include "engine/engine.h"
#include "engine/generator.h"
#include "serve/held_requests.h"
#include "serve/kv_connector_stats.h"
#include "serve/kv_pool_client.h"

namespace fathom::serve {

class KvConnector final : public engine::Generator {
 public:
  struct Options {
    http::Url pool;
    std::string api_key;  // the pool's
    // A prompt takes blocks from the pool where that saves it computing at least so many tokens.
    int64_t min_tokens = 64;
    std::chrono::milliseconds deadline{1'000};    // of a lookup, blocks included; of a write
    std::chrono::milliseconds inhibition{2'000};  // between two questions whether the pool is back
    std::function<void(const std::string&)> warn = [](const std::string&) {};  // for people; any thread
  };
  // Requests go to `next`, which is `engine` or in front of it; both must outlive this. Fails where the
  // engine cannot share blocks, and where the pool refuses; a pool that does not answer may come later.
  static Result<std::unique_ptr<KvConnector>> start(engine::Engine& engine, engine::Generator& next,
                                                    const Options& options);
  ~KvConnector() override;

  std::variant<engine::RequestId, engine::Refusal> submit(engine::Request request,
                                                          engine::Listener listener) override;
  void cancel(engine::RequestId id, engine::FinishReason reason = engine::FinishReason::cancelled) override;
  engine::GeneratorStats stats() const override;
  int64_t max_context() const override { return next_.max_context(); }
  bool drain(std::chrono::nanoseconds timeout) override;

  KvConnectorStats connector_stats() const;

 private:
  using Tokens = std::shared_ptr<const std::vector<model::TokenId>>;  // prompt and answer so far
  // A request that waits for blocks.
  struct Lookup : HeldRequests::Held {
    Tokens tokens;
    std::string salt;
    uint64_t seed = 0;
    engine::TimePoint until;
    std::vector<KvPoolKey> keys;
    std::vector<bool> here;               // of each key, whether the pool has it
    int64_t prefix = 0;                   // tokens of the prefix that `blocks` complete
    std::vector<engine::KvBlock> blocks;  // wanted; those before `loaded` are there
    size_t loaded           = 0;
    int64_t loading         = 0;      // its part of loading_bytes_
    std::atomic<bool> ended = false;  // it was released, or will be at once
  };
  using LookupPtr = std::shared_ptr<Lookup>;
  struct Written {
    Tokens tokens;
    std::string salt;
  };
  // Prompts whose blocks are to be written. Listeners of requests keep it.
  struct Queue {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Written> prompts;
    bool open = false, ending = false;  // open: the pool is there
    engine::TimePoint retry_at;         // else it is asked for again then
    int64_t dropped = 0;
  };

  KvConnector(engine::Engine& engine, engine::Generator& next, const Options& options,
              std::unique_ptr<KvPoolClient> client);
  Result<KvPoolClient::Hello> hello();
  void found(const KvPoolClient::Hello& hello);
  void lost(uint64_t seed, const std::string& why);
  std::optional<uint64_t> seed() const;
  size_t place_of(engine::KvKind kind, int64_t block) const;  // of its key

  void matched(const LookupPtr& one, Result<std::vector<bool>> here);
  void choose(const LookupPtr& one, engine::KvStore& store);
  void load(const LookupPtr& one);
  void loaded(const LookupPtr& one, Result<std::shared_ptr<const LoadedBlocks>> blocks);
  void insert(const LookupPtr& one, engine::KvStore& store);
  using Counter = int64_t KvConnectorStats::*;
  bool finish(Lookup& one, Counter how);
  void end(const LookupPtr& one, Counter how);
  std::chrono::nanoseconds left(const Lookup& one) const;

  engine::Listener writing(engine::Listener listener, Written prompt) const;
  void work();
  void look_for_pool();
  void write(const Written& prompt, uint64_t seed);

  engine::Engine& engine_;
  engine::Generator& next_;
  const Options options_;
  const std::string layout_;
  const int64_t page_size_;
  std::vector<engine::KvKind> kinds_;  // of layers that the model has
  const std::unique_ptr<KvPoolClient> client_;
  mutable std::mutex mutex_;
  // Under mutex_.
  std::optional<uint64_t> seed_;  // the pool's; none: it is away
  int64_t loading_bytes_ = 0;     // of blocks on their way
  KvConnectorStats stats_;

  HeldRequests held_;
  const std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
  std::thread thread_;
};

}  // namespace fathom::serve
