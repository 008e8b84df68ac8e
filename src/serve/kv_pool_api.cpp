#include "serve/kv_pool_api.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "http/sse.h"
#include "serve/api_error.h"
#include "serve/bearer_token.h"
#include "serve/exposition.h"
#include "serve/kv_pool_protocol.h"
#include "serve/metrics.h"
#include "serve/process_series.h"

namespace fathom::serve {
namespace {

using PoolJson = nlohmann::ordered_json;

void answer(http::Exchange& exchange, std::string body) {
  exchange.respond(200, {{"Content-Type", "application/octet-stream"}}, std::move(body));
}
void answer(http::Exchange& exchange, const PoolJson& body) {
  exchange.respond(200, {{"Content-Type", "application/json"}}, http::text_of(body));
}
void refuse(http::Exchange& exchange, int status, std::string message) {
  exchange.respond(
      status, {{"Content-Type", "application/json"}},
      http::text_of(error_json({.status = status, .type = "KvPoolError", .message = std::move(message)})));
}

}  // namespace

KvPoolApi::KvPoolApi(KvPool& pool, std::string api_key)
    : pool_(pool),
      api_key_(std::move(api_key)),
      seed_([] {
        std::random_device random;
        return uint64_t{random()} << 32 | random();
      }()),
      started_s_(std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count()) {
}

http::Handler KvPoolApi::handler() const {
  return
      [this](http::Request request, std::shared_ptr<http::Exchange> exchange) { handle(request, *exchange); };
}

http::ServerOptions KvPoolApi::server_options() {
  return {.max_body_bytes = kMaxKvBlockBytes + sizeof(KvPoolFrame) + sizeof(KvBlockHead)};
}

void KvPoolApi::handle(const http::Request& request, http::Exchange& exchange) const {
  const std::string& path = request.path;
  if (path == "/health") return answer(exchange, PoolJson::object());
  if (!api_key_.empty() && !has_bearer_token(request, api_key_))
    return refuse(exchange, 401, "this KV cache pool wants its --api-key: give workers the same");
  if (request.method == "GET" && path == "/metrics")
    return exchange.respond(200, {{"Content-Type", std::string(ServeMetrics::kContentType)}}, metrics());
  if (request.method == "GET" && path == "/kv/hello")
    return answer(exchange,
                  PoolJson{{"protocol", kKvPoolProtocol}, {"seed", seed_}, {"budget", pool_.stats().budget}});
  const bool match = path == "/kv/match", contains = path == "/kv/contains", get = path == "/kv/get";
  if (request.method != "POST" || !(match || contains || get || path == "/kv/put"))
    return refuse(exchange, 404, fmt::format("a KV cache pool has no {} {}", request.method, path));

  std::string_view rest = request.body;
  const auto frame      = take_frame(rest);
  if (!frame || frame->protocol != kKvPoolProtocol)
    return refuse(exchange, 400, "this is no worker of this version of fathom: start both from one build");
  if (frame->seed != seed_)
    return refuse(exchange, 409, "the names are those of a former pool: ask for /kv/hello again");
  if (path == "/kv/put") return store(rest, exchange);
  const auto keys = parse_keys(rest);
  if (!keys) return refuse(exchange, 400, keys.error().message);
  if (get && keys->size() > kMaxKeysOfGet)
    return refuse(
        exchange, 413,
        fmt::format("{} blocks are too many at once: ask for at most {}", keys->size(), kMaxKeysOfGet));
  if (get) return answer(exchange, load(*keys));
  const std::vector<bool> here = pool_.match(*keys, match);
  answer(exchange, std::string(here.begin(), here.end()));
}

void KvPoolApi::store(std::string_view rest, http::Exchange& exchange) const {
  const auto blocks = parse_blocks(rest);
  if (!blocks) return refuse(exchange, 400, blocks.error().message);
  for (const auto& [key, bytes, checksum] : *blocks) {
    if (checksum_of(key, bytes) != checksum) {
      pool_.count_damaged();
      return refuse(exchange, 400, "a block was damaged on its way: its checksum is another");
    }
    if (!bytes.empty() && !pool_.put(key, {.bytes = std::string(bytes), .checksum = checksum}))
      return refuse(
          exchange, 413,
          fmt::format("a block of {} bytes is larger than the pool, which has {}: give it more --bytes",
                      bytes.size(), pool_.stats().budget));
  }
  answer(exchange, PoolJson::object());
}

std::string KvPoolApi::load(std::span<const KvPoolKey> keys) const {
  std::string message;
  for (const KvPoolKey& key : keys) {
    const bool room = message.size() < 2 * kKvMessageBytes;  // workers ask for less
    auto block      = room ? pool_.get(key) : nullptr;
    if (block &&
        checksum_of(key, block->bytes) != block->checksum) {  // memory failed: a worker brings it again
      pool_.erase_damaged(key);
      block = nullptr;
    }
    append_block(message, key, block ? std::string_view(block->bytes) : "", block ? block->checksum : 0);
  }
  return message;
}

std::string KvPoolApi::metrics() const {
  const KvPoolStats stats = pool_.stats();
  Exposition to({});
  to.gauge({"fathom_kv_pool_blocks"}, "Blocks of keys and values that are here.",
           static_cast<double>(stats.blocks));
  to.gauge({"fathom_kv_pool_bytes"}, "What they take of the budget.", static_cast<double>(stats.bytes));
  to.gauge({"fathom_kv_pool_budget_bytes"}, "The budget: --bytes.", static_cast<double>(stats.budget));
  to.counter({"fathom_kv_pool_hits"}, "Blocks of prompts that were looked up and are here.", stats.hits);
  to.counter({"fathom_kv_pool_misses"}, "Blocks of prompts that were looked up and are not.", stats.misses);
  to.counter({"fathom_kv_pool_stored_blocks"}, "Blocks that workers brought.", stats.stored);
  to.counter({"fathom_kv_pool_stored_bytes"}, "Their bytes.", stats.stored_bytes);
  to.counter({"fathom_kv_pool_loaded_blocks"}, "Blocks that workers took.", stats.loaded);
  to.counter({"fathom_kv_pool_loaded_bytes"}, "Their bytes.", stats.loaded_bytes);
  to.counter({"fathom_kv_pool_evicted_blocks"}, "Blocks that gave way to others.", stats.evicted);
  to.counter({"fathom_kv_pool_damaged_blocks"}, "Blocks that came with a wrong checksum.", stats.damaged);
  add_process_series(started_s_, to);
  return to.text();
}

}  // namespace fathom::serve
