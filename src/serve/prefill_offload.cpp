#include "serve/prefill_offload.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/queue_limit.h"
#include "http/sse.h"

namespace fathom::serve {
namespace {

using engine::FinishReason;
using engine::RequestId;
using OffloadClock = std::chrono::steady_clock;

// Ids of considered requests; the engine's own are below.
constexpr RequestId kFirstOffloaded = RequestId{1} << 63;
constexpr int64_t kLandingContexts  = 4;  // prompts of the whole context that may be on their way at once
// Of the landing memory, from its beginning, where the first free pages are. What lies behind is copied
// slower.
constexpr size_t kPinnedBytes = size_t{1} << 30;
// A prefill worker answers when it has computed the prompt; the lease ends one that is silent long before.
constexpr auto kLongestPrefill = std::chrono::minutes(10);

transfer::Landing::Options landing_options(const engine::Engine& engine, std::chrono::milliseconds lease) {
  const auto full   = engine.kv_block_bytes(engine::kFull);
  const auto window = engine.kv_block_bytes(engine::kWindow);
  return {.pages      = kLandingContexts * 2 * (engine.max_context() / engine.config().page_size + 1),
          .page_bytes = std::max({full, window, int64_t{1}}),
          .lease      = lease,
          .limit      = kLongestPrefill};
}

}  // namespace

PrefillOffload::PrefillOffload(engine::Engine& engine, const Options& options)
    : engine_(engine),
      options_(options),
      landing_(landing_options(engine, options.lease)),
      held_(engine, kFirstOffloaded) {
  const std::span<std::byte> memory = landing_.memory().bytes();
  const auto block                  = static_cast<size_t>(landing_.page_bytes());
  std::promise<std::shared_ptr<void>> pinned;
  engine_.with_kv([&](engine::KvStore& store) {
    pinned.set_value(
        store.pin_host_memory(memory.first(std::min(memory.size(), kPinnedBytes / block * block))));
  });
  pinned_ = pinned.get_future().get();
}

Result<std::unique_ptr<PrefillOffload>> PrefillOffload::start(engine::Engine& engine,
                                                              const Options& options) {
  std::unique_ptr<PrefillOffload> offload(new PrefillOffload(engine, options));
  auto server = transfer::LandingServer::listen(offload->landing_, options.host);
  if (!server) return server.error();
  offload->server_ = std::move(server).value();
  if (const Status known = offload->ask_only(options.peers); !known) return known.error();
  return offload;
}

// A peer keeps its place and its client as long as this lives: answers may be on their way.
Status PrefillOffload::ask_only(const std::vector<http::Url>& peers) {
  const std::lock_guard lock(mutex_);
  for (Peer& peer : peers_) peer.asked = false;
  for (const http::Url& url : peers) {
    const std::string address = http::to_string(url);
    const auto known =
        std::find_if(peers_.begin(), peers_.end(), [&](const Peer& p) { return p.address == address; });
    if (known != peers_.end()) {
      known->asked = true;
      continue;
    }
    auto client = http::Client::open(url, 1);
    if (!client) return client.error();
    peers_.push_back({.address = address, .client = std::move(client).value(), .inhibited_until = {}});
  }
  return Ok();
}

std::vector<std::string> PrefillOffload::peers() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> addresses;
  for (const Peer& peer : peers_)
    if (peer.asked) addresses.push_back(peer.address);
  return addresses;
}

// The engine still runs, so everything that was begun ends through it.
PrefillOffload::~PrefillOffload() {
  for (Peer& peer : peers_) peer.client->stop();
  for (const auto& one : held_.end()) revoke(static_cast<const Offloaded&>(*one));
  held_.wait_until_gone();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return read_ == 0; });
}

std::variant<RequestId, engine::Refusal> PrefillOffload::submit(engine::Request request,
                                                                engine::Listener listener) {
  const auto tokens = static_cast<int64_t>(request.prompt.size() + request.resumed.size());
  const auto now    = stats();
  if (auto full = engine::full_queue(engine_.config(), now.waiting, now.waiting_tokens, tokens)) return *full;
  if (tokens < least_uncached(request) || peers().empty())
    return engine_.submit(std::move(request), std::move(listener));
  if (auto refusal = engine_.refusal(request)) return *refusal;
  auto one    = std::make_shared<Offloaded>();
  one->tokens = request.prompt;
  one->tokens.insert(one->tokens.end(), request.resumed.begin(), request.resumed.end());
  one->request  = std::move(request);
  one->listener = std::move(listener);
  if (auto refusal = held_.hold(one)) return *refusal;
  engine_.with_kv([this, one](engine::KvStore& store) { consider(one, store); });
  return one->id;
}

// Tokens that must not be cached here, for a request to be offloaded.
int64_t PrefillOffload::least_uncached(const engine::Request& request) const {
  if (!request.do_remote_prefill) return options_.min_uncached_tokens;
  return *request.do_remote_prefill ? engine_.config().page_size : std::numeric_limits<int64_t>::max();
}

// On the engine's thread: what lacks here, and whether it is enough to ask for.
void PrefillOffload::consider(const OffloadedPtr& one, engine::KvStore& store) {
  const int64_t cached = store.cached_tokens(one->tokens, one->request.cache_salt);
  if (static_cast<int64_t>(one->tokens.size()) - cached < least_uncached(one->request))
    return held_.release(one);
  one->blocks = store.missing(one->tokens, one->request.cache_salt);
  if (one->blocks.empty() || !ask(one)) held_.release(one);
}

bool PrefillOffload::ask(const OffloadedPtr& one) {
  std::vector<uint64_t> sizes;
  for (const engine::KvBlock& block : one->blocks)
    sizes.push_back(static_cast<uint64_t>(engine_.kv_block_bytes(block.kind)));
  const auto now       = OffloadClock::now();
  http::Client* client = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!held_.may_wait(*one)) return false;
    for (size_t i = 0; i < peers_.size() && !client; ++i) {
      one->peer        = next_peer_++ % peers_.size();
      const Peer& peer = peers_[one->peer];
      if (peer.asked && peer.inhibited_until <= now) client = peer.client.get();
    }
    if (!client) return false;
    const auto granted =
        landing_.grant(sizes, now, [this, one](transfer::Outcome outcome) { landed(one, outcome); });
    if (!granted) return false;
    one->grant = *granted;  // from now on cancel() revokes it
    ++stats_.asked;
  }
  http::ClientRequest call{.method  = "POST",
                           .target  = "/worker/prefill",
                           .headers = {{"Content-Type", "application/json"}},
                           .timeout = kLongestPrefill};
  if (!options_.api_key.empty()) call.headers.push_back({"Authorization", "Bearer " + options_.api_key});
  call.body = http::text_of(
      json_of(PrefillRequest{.prompt     = one->tokens,
                             .cache_salt = one->request.cache_salt,
                             .layout     = options_.layout,
                             .grant      = one->grant,
                             .blocks     = one->blocks,
                             .port       = server_->port(),
                             .memory     = options_.shared_memory ? landing_.memory().path() : ""}));
  // Success is known by what landed. Any other answer ends the wait at once.
  const auto status = std::make_shared<int>(0);
  client->start(std::move(call),
                {.status = [status](int got) { *status = got; },
                 .body   = [](OffloadClock::time_point, std::string_view) {},
                 .end =
                     [this, one, status](OffloadClock::time_point, const std::string& error) {
                       if (!error.empty() || *status != 200) landing_.revoke(one->grant.tag);
                     }});
  return true;
}

// From any thread, with no lock held.
void PrefillOffload::landed(const OffloadedPtr& one, transfer::Outcome outcome) {
  if (outcome != transfer::Outcome::complete) {
    const std::lock_guard lock(mutex_);
    ++stats_.failed;
    if (outcome == transfer::Outcome::expired)
      peers_[one->peer].inhibited_until = OffloadClock::now() + options_.inhibition;
  }
  engine_.with_kv([this, one, outcome](engine::KvStore& store) {
    if (outcome == transfer::Outcome::complete) use_blocks(*one, store);
    held_.release(one);  // as any other; blocks that were evicted meanwhile are computed
  });
}

void PrefillOffload::use_blocks(Offloaded& one, engine::KvStore& store) {
  {
    const std::lock_guard lock(mutex_);
    ++read_;
  }
  // The pages are free when the engine has read the last block, on any thread.
  std::shared_ptr<const void> owner(this, [this, tag = one.grant.tag](const void*) {
    landing_.release(tag);
    const std::lock_guard lock(mutex_);
    --read_;
    changed_.notify_all();  // under the lock: the destructor waits for it
  });
  for (uint32_t i = 0; i < one.blocks.size(); ++i) {
    one.blocks[i].bytes = landing_.slice(one.grant, i);
    one.blocks[i].owner = owner;
  }
  owner             = nullptr;
  const int64_t had = store.cached_tokens(one.tokens, one.request.cache_salt);
  const bool used   = store.insert(one.tokens, one.request.cache_salt, one.blocks);
  for (engine::KvBlock& block : one.blocks) block.owner = nullptr;
  if (used) one.request.received_tokens += store.cached_tokens(one.tokens, one.request.cache_salt) - had;
  const std::lock_guard lock(mutex_);
  used ? ++stats_.landed : ++stats_.failed;
  if (used) stats_.blocks += static_cast<int64_t>(one.blocks.size());
}

void PrefillOffload::cancel(RequestId id, FinishReason reason) {
  if (const auto one = held_.cancel(id, reason)) revoke(static_cast<const Offloaded&>(*one));
}

// Where its prompt was asked for, that ends now, and landed() goes on with the request.
void PrefillOffload::revoke(const Offloaded& one) {
  transfer::Tag tag;
  {
    const std::lock_guard lock(mutex_);
    tag = one.grant.tag;
  }
  landing_.revoke(tag);
}

engine::GeneratorStats PrefillOffload::stats() const {
  engine::GeneratorStats stats = engine_.stats();
  held_.add_to(stats);
  return stats;
}

bool PrefillOffload::drain(std::chrono::nanoseconds timeout) {
  const auto until = OffloadClock::now() + timeout;
  if (!held_.drain(until)) return false;
  return engine_.drain(std::max(std::chrono::nanoseconds(0), until - OffloadClock::now()));
}

OffloadStats PrefillOffload::offload_stats() const {
  const std::lock_guard lock(mutex_);
  OffloadStats stats              = stats_;
  stats.landing_pages_free        = landing_.free_pages();
  stats.landing_pages_quarantined = landing_.quarantined_pages();
  stats.landing_pages             = landing_options(engine_, options_.lease).pages;
  return stats;
}

}  // namespace fathom::serve
