#include "serve/kv_connector.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <string_view>

#include "engine/queue_limit.h"
#include "serve/worker_protocol.h"

namespace fathom::serve {
namespace {

using engine::FinishReason;
using engine::KvKind;
using engine::RequestId;
using ConnectorClock = std::chrono::steady_clock;

// Ids of requests that looked a prompt up. Those of `next` are below or, of a PrefillOffload, above; see
// HeldRequests.
constexpr RequestId kFirstLookup   = RequestId{3} << 62;
constexpr size_t kMaxQueuedPrompts = 64;
constexpr int64_t kMaxLoadingBytes = int64_t{512} << 20;  // of all lookups together, or one with more

std::string_view text_of_bytes(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

KvConnector::KvConnector(engine::Engine& engine, engine::Generator& next, const Options& options,
                         std::unique_ptr<KvPoolClient> client)
    : engine_(engine),
      next_(next),
      options_(options),
      layout_(kv_layout(engine)),
      page_size_(engine.config().page_size),
      client_(std::move(client)),
      held_(next, kFirstLookup) {
  for (const KvKind kind : {engine::kFull, engine::kWindow})
    if (engine.kv_block_bytes(kind) > 0) kinds_.push_back(kind);
  engine_.with_kv([](engine::KvStore& store) { store.prepare_reads(); });
}

Result<std::unique_ptr<KvConnector>> KvConnector::start(engine::Engine& engine, engine::Generator& next,
                                                        const Options& options) {
  if (const Status able = can_share_kv(engine, "--kv-pool"); !able) return able.error();
  auto client = KvPoolClient::open(options.pool, options.api_key);
  if (!client) return client.error();
  std::unique_ptr<KvConnector> connector(new KvConnector(engine, next, options, std::move(client).value()));
  const auto hello = connector->hello();
  if (hello && !hello->refusal.empty()) return Error{hello->refusal};
  if (hello)
    connector->found(*hello);
  else
    options.warn(fmt::format("the KV cache pool does not answer, and will be used when it does: {}",
                             hello.error().message));
  connector->thread_ = std::thread([raw = connector.get()] { raw->work(); });
  return connector;
}

// The engine still runs, so everything that was begun ends through it.
KvConnector::~KvConnector() {
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->ending = true;
    queue_->open   = false;
  }
  queue_->changed.notify_all();
  if (thread_.joinable()) thread_.join();
  client_->stop();
  for (const auto& one : held_.end()) end(std::static_pointer_cast<Lookup>(one), nullptr);
  held_.wait_until_gone();
  std::promise<void> done;  // with_kv() keeps the order: nothing of this is left behind it
  engine_.with_kv([&](engine::KvStore&) { done.set_value(); });
  done.get_future().wait();
}

// The pool's state.

Result<KvPoolClient::Hello> KvConnector::hello() {
  auto hello = client_->hello(options_.deadline);
  if (!hello || !hello->refusal.empty()) return hello;
  int64_t largest = 0;
  for (const KvKind kind : kinds_) largest = std::max(largest, engine_.kv_block_bytes(kind));
  if (largest + KvPool::kEntryBytes > hello->budget)
    hello->refusal = fmt::format(
        "the KV cache pool {} has {} bytes, but a block of this model has {}: give it more --bytes",
        client_->address(), hello->budget, largest);
  else if (largest > static_cast<int64_t>(kMaxKvBlockBytes))
    hello->refusal = fmt::format(
        "a block of this model has {} bytes, and a KV cache pool takes at most {}: choose a smaller "
        "--block-size",
        largest, kMaxKvBlockBytes);
  return hello;
}

void KvConnector::found(const KvPoolClient::Hello& hello) {
  const std::scoped_lock lock(mutex_,
                              queue_->mutex);  // a lost() between the two would leave it open without a seed
  seed_        = hello.seed;
  queue_->open = !queue_->ending;
}

// A call with the names of that seed failed.
void KvConnector::lost(uint64_t seed, const std::string& why) {
  {
    const std::scoped_lock lock(mutex_, queue_->mutex);
    if (seed_ != seed) return;  // others have noticed
    seed_.reset();
    ++stats_.outages;
    queue_->open     = false;
    queue_->retry_at = ConnectorClock::now() + options_.inhibition;
    queue_->dropped += std::ssize(queue_->prompts);
    queue_->prompts.clear();
  }
  queue_->changed.notify_all();
  options_.warn(fmt::format("the KV cache pool is away, and prompts are computed here: {}", why));
}

std::optional<uint64_t> KvConnector::seed() const {
  const std::lock_guard lock(mutex_);
  return seed_;
}

// Lookups.

std::variant<RequestId, engine::Refusal> KvConnector::submit(engine::Request request,
                                                             engine::Listener listener) {
  const auto seed  = this->seed();
  const auto count = static_cast<int64_t>(request.prompt.size() + request.resumed.size());
  if (!seed && count >= page_size_) {
    const std::lock_guard lock(queue_->mutex);
    ++queue_->dropped;
  }
  if (!seed || count < page_size_) return next_.submit(std::move(request), std::move(listener));
  auto all = request.prompt;
  all.insert(all.end(), request.resumed.begin(), request.resumed.end());
  const auto tokens = std::make_shared<const std::vector<model::TokenId>>(std::move(all));
  auto writes       = writing(std::move(listener), {.tokens = tokens, .salt = request.cache_salt});
  const auto now    = stats();
  if (auto full = engine::full_queue(engine_.config(), now.waiting, now.waiting_tokens, count)) return *full;
  if (count <= options_.min_tokens) return next_.submit(std::move(request), std::move(writes));
  if (auto refusal = engine_.refusal(request)) return *refusal;

  const auto one = std::make_shared<Lookup>();
  one->tokens    = tokens;
  one->salt      = request.cache_salt;
  one->seed      = *seed;
  one->until     = ConnectorClock::now() + options_.deadline;
  one->keys      = kv_pool_keys(*tokens, page_size_, kinds_, layout_, one->salt, *seed);
  one->request   = std::move(request);
  one->listener  = std::move(writes);
  if (auto refusal = held_.hold(one)) return *refusal;
  const RequestId id = one->id;
  client_->match(*seed, one->keys, left(*one),
                 [this, one](Result<std::vector<bool>> here) { matched(one, std::move(here)); });
  return id;
}

std::chrono::nanoseconds KvConnector::left(const Lookup& one) const {
  return std::max<std::chrono::nanoseconds>(one.until - ConnectorClock::now(), std::chrono::milliseconds(1));
}

size_t KvConnector::place_of(KvKind kind, int64_t block) const {
  return static_cast<size_t>(block) * kinds_.size() + (kinds_.front() == kind ? 0 : 1);
}

// On the client's thread.
void KvConnector::matched(const LookupPtr& one, Result<std::vector<bool>> here) {
  if (!here) {
    lost(one->seed, here.error().message);
    return end(one, &KvConnectorStats::failures);
  }
  one->here = std::move(here).value();
  if (std::find(one->here.begin(), one->here.end(), true) == one->here.end())
    return end(one, &KvConnectorStats::misses);
  engine_.with_kv([this, one](engine::KvStore& store) { choose(one, store); });
}

// On the engine's thread: the longest prefix that the blocks there and here make, and what lacks of it here.
void KvConnector::choose(const LookupPtr& one, engine::KvStore& store) {
  if (one->ended) return;
  one->until = ConnectorClock::now() + options_.deadline;  // the engine's step was no time of the pool
  const int64_t cached = store.cached_tokens(*one->tokens, one->salt);
  one->prefix          = store.cached_tokens(*one->tokens, one->salt, [&](KvKind kind, int64_t block) {
    return static_cast<bool>(one->here[place_of(kind, block)]);
  });
  const auto end_now   = [&](Counter how) {
    if (finish(*one, how)) held_.release(one);
  };
  if (one->prefix - cached < options_.min_tokens) return end_now(&KvConnectorStats::unneeded);
  const std::span prefix = std::span(*one->tokens).first(static_cast<size_t>(one->prefix + 1));
  one->blocks            = store.missing(prefix, one->salt);
  int64_t bytes          = 0;
  for (const engine::KvBlock& block : one->blocks) bytes += engine_.kv_block_bytes(block.kind);
  {
    const std::lock_guard lock(mutex_);
    const bool room = loading_bytes_ == 0 || loading_bytes_ + bytes <= kMaxLoadingBytes;
    if (!one->ended && room) loading_bytes_ += one->loading = bytes;
  }
  if (one->loading == 0) return end_now(&KvConnectorStats::failures);
  load(one);
}

// As many of the blocks as fit in a message, or at least one.
void KvConnector::load(const LookupPtr& one) {
  std::vector<KvPoolKey> keys;
  int64_t bytes = 0;
  for (size_t i = one->loaded; i < one->blocks.size(); ++i) {
    const auto& [kind, block, data, owner] = one->blocks[i];
    bytes += engine_.kv_block_bytes(kind);
    if (!keys.empty() && bytes > static_cast<int64_t>(kKvMessageBytes)) break;
    keys.push_back(one->keys[place_of(kind, block)]);
  }
  client_->get(one->seed, keys, left(*one), [this, one](Result<std::shared_ptr<const LoadedBlocks>> blocks) {
    loaded(one, std::move(blocks));
  });
}

// On the client's thread.
void KvConnector::loaded(const LookupPtr& one, Result<std::shared_ptr<const LoadedBlocks>> got) {
  if (!got) {
    if (one->loaded == 0) lost(one->seed, got.error().message);  // else it is slow
    return end(one, &KvConnectorStats::failures);
  }
  for (const BlockView& view : (*got)->blocks) {
    engine::KvBlock& block = one->blocks[one->loaded++];
    if (static_cast<int64_t>(view.bytes.size()) != engine_.kv_block_bytes(block.kind))
      return end(one, &KvConnectorStats::misses);  // evicted since
    block.bytes = std::as_bytes(std::span(view.bytes.data(), view.bytes.size()));
    block.owner = *got;
  }
  if (one->ended) return;
  if (one->loaded < one->blocks.size()) return load(one);
  engine_.with_kv([this, one](engine::KvStore& store) { insert(one, store); });
}

// On the engine's thread.
void KvConnector::insert(const LookupPtr& one, engine::KvStore& store) {
  if (one->ended) return;
  const std::span prefix = std::span(*one->tokens).first(static_cast<size_t>(one->prefix + 1));
  const int64_t had      = store.cached_tokens(prefix, one->salt);
  // Not where blocks that were cached here have gone, or too few pages are free.
  const bool inserted = store.insert(prefix, one->salt, one->blocks);
  if (inserted) {
    const std::lock_guard lock(mutex_);
    stats_.loaded_blocks += std::ssize(one->blocks);
    stats_.loaded_bytes += one->loading;
  }
  if (!finish(*one, inserted ? &KvConnectorStats::loads : &KvConnectorStats::failures)) return;
  if (inserted) one->request.received_tokens += one->prefix - had;
  held_.release(one);
}

// Whether the caller is to release the request, which goes on to the engine, or ends where it was cancelled.
bool KvConnector::finish(Lookup& one, Counter how) {
  if (one.ended.exchange(true)) return false;
  const std::lock_guard lock(mutex_);
  loading_bytes_ -= one.loading;
  if (how) ++(stats_.*how);
  return true;
}

void KvConnector::end(const LookupPtr& one, Counter how) {
  if (finish(*one, how)) engine_.with_kv([this, one](engine::KvStore&) { held_.release(one); });
}

void KvConnector::cancel(RequestId id, FinishReason reason) {
  if (const auto one = held_.cancel(id, reason)) end(std::static_pointer_cast<Lookup>(one), nullptr);
}

engine::GeneratorStats KvConnector::stats() const {
  engine::GeneratorStats stats = next_.stats();
  held_.add_to(stats);
  return stats;
}

bool KvConnector::drain(std::chrono::nanoseconds timeout) {
  const auto until = ConnectorClock::now() + timeout;
  return held_.drain(until) &&
         next_.drain(std::max(std::chrono::nanoseconds(0), until - ConnectorClock::now()));
}

KvConnectorStats KvConnector::connector_stats() const {
  KvConnectorStats stats;
  {
    const std::lock_guard lock(mutex_);
    stats    = stats_;
    stats.up = seed_.has_value();
  }
  const std::lock_guard lock(queue_->mutex);
  stats.dropped += queue_->dropped;
  return stats;
}

// Writes.

// With the first token the prompt is computed, and its blocks may be written.
engine::Listener KvConnector::writing(engine::Listener listener, Written prompt) const {
  return [listener = std::move(listener), prompt = std::move(prompt), queue = queue_,
          told = false](const engine::RequestOutput& output) mutable {
    if (!output.tokens.empty() && !std::exchange(told, true)) {
      {
        const std::lock_guard lock(queue->mutex);
        if (queue->open && queue->prompts.size() < kMaxQueuedPrompts)
          queue->prompts.push_back(std::move(prompt));
        else
          ++queue->dropped;
      }
      queue->changed.notify_one();
    }
    listener(output);
  };
}

// The thread that writes; while the pool is away, it asks for it.
void KvConnector::work() {
  for (;;) {
    std::optional<Written> prompt;
    {
      std::unique_lock lock(queue_->mutex);
      const auto ready = [&] { return queue_->ending || !queue_->prompts.empty(); };
      if (queue_->open)
        queue_->changed.wait(lock, [&] { return ready() || !queue_->open; });
      else
        queue_->changed.wait_until(lock, queue_->retry_at, [&] { return queue_->ending; });
      if (queue_->ending) return;
      if (!queue_->prompts.empty()) {
        prompt = std::move(queue_->prompts.front());
        queue_->prompts.pop_front();
      }
    }
    const auto seed = this->seed();
    if (seed && prompt) write(*prompt, *seed);
    if (!seed) look_for_pool();
  }
}

void KvConnector::look_for_pool() {
  {
    const std::lock_guard lock(queue_->mutex);
    if (ConnectorClock::now() < queue_->retry_at) return;  // it has just been lost
    queue_->retry_at = ConnectorClock::now() + options_.inhibition;
  }
  const auto hello = this->hello();
  if (!hello || !hello->refusal.empty()) return;
  found(*hello);
  options_.warn(fmt::format("the KV cache pool {} answers again", client_->address()));
}

// From the last block to the first: LRU gives up the end of a prefix before its beginning, there and here.
void KvConnector::write(const Written& prompt, uint64_t seed) {
  const auto keys = kv_pool_keys(*prompt.tokens, page_size_, kinds_, layout_, prompt.salt, seed);
  const auto here = client_->contains(seed, keys, options_.deadline);
  if (!here) return lost(seed, here.error().message);
  std::vector<engine::KvBlock> lacking;
  for (size_t i = keys.size(); i-- > 0;)
    if (!(*here)[i])
      lacking.push_back(
          {.kind = kinds_[i % kinds_.size()], .block = static_cast<int64_t>(i / kinds_.size()), .bytes = {}});
  for (size_t i = 0; i < lacking.size();) {
    {
      const std::lock_guard lock(queue_->mutex);
      if (queue_->ending || !queue_->open) return;
    }
    std::vector<engine::KvBlock> some;
    int64_t bytes = 0;
    for (; i < lacking.size(); ++i) {
      bytes += engine_.kv_block_bytes(lacking[i].kind);
      if (!some.empty() && bytes > static_cast<int64_t>(kKvMessageBytes)) break;
      some.push_back(lacking[i]);
    }
    std::vector<engine::KvBlock> read;
    std::promise<void> done;
    engine_.with_kv([&](engine::KvStore& store) {
      store.read(*prompt.tokens, prompt.salt, some,
                 [&](const engine::KvBlock& block) { read.push_back(block); });
      done.set_value();
    });
    done.get_future().wait();
    if (read.empty()) continue;  // evicted since
    std::string message = block_message(seed);
    int64_t sent        = 0;
    for (const engine::KvBlock& block : read) {
      const KvPoolKey& key = keys[place_of(block.kind, block.block)];
      const auto text      = text_of_bytes(block.bytes);
      append_block(message, key, text, checksum_of(key, text));
      sent += std::ssize(block.bytes);
    }
    if (const Status stored = client_->put(std::move(message), options_.deadline); !stored)
      return lost(seed, stored.error().message);
    const std::lock_guard lock(mutex_);
    stats_.stored_blocks += std::ssize(read);
    stats_.stored_bytes += sent;
  }
  const std::lock_guard lock(mutex_);
  ++stats_.stored_prompts;
}

}  // namespace fathom::serve
