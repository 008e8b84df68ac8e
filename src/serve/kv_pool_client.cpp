#include "serve/kv_pool_client.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace fathom::serve {
namespace {

using PoolJson = nlohmann::ordered_json;

Result<std::vector<bool>> flags_of(const std::string& answer, size_t keys) {
  if (answer.size() != keys) return Error{"the KV cache pool answered for another number of blocks"};
  return std::vector<bool>(answer.begin(), answer.end());
}

Result<std::shared_ptr<const LoadedBlocks>> blocks_of(std::string answer, std::span<const KvPoolKey> keys) {
  const auto loaded = std::make_shared<LoadedBlocks>();
  loaded->message   = std::move(answer);
  auto blocks       = parse_blocks(loaded->message);
  if (!blocks) return blocks.error();
  loaded->blocks = std::move(blocks).value();
  if (loaded->blocks.size() != keys.size())
    return Error{"the KV cache pool answered with another number of blocks"};
  for (size_t i = 0; i < keys.size(); ++i) {
    auto& [key, bytes, checksum] = loaded->blocks[i];
    if (!(key == keys[i])) return Error{"the KV cache pool answered with another block"};
    if (!bytes.empty() && checksum_of(key, bytes) != checksum) bytes = {};  // damaged: as if not there
  }
  return std::shared_ptr<const LoadedBlocks>(loaded);
}

}  // namespace

KvPoolClient::KvPoolClient(std::unique_ptr<http::Client> client, std::string address, std::string api_key)
    : client_(std::move(client)), address_(std::move(address)), api_key_(std::move(api_key)) {}

Result<std::unique_ptr<KvPoolClient>> KvPoolClient::open(const http::Url& pool, const std::string& api_key) {
  auto client = http::Client::open(pool, 1);
  if (!client) return client.error();
  return std::unique_ptr<KvPoolClient>(
      new KvPoolClient(std::move(client).value(), http::to_string(pool), api_key));
}

http::ClientRequest KvPoolClient::call(std::string target, std::string body, Timeout timeout) const {
  http::ClientRequest call{
      .method = "POST", .target = std::move(target), .body = std::move(body), .timeout = timeout};
  if (!api_key_.empty()) call.headers.push_back({"Authorization", "Bearer " + api_key_});
  return call;
}

// What a server said that refused.
Error KvPoolClient::failure(int status, const std::string& body) const {
  const PoolJson json = PoolJson::parse(body, nullptr, false);
  const PoolJson none;
  const PoolJson& error   = json.is_object() && json.contains("error") ? json["error"] : none;
  const std::string words = error.is_object() && error.contains("message") && error["message"].is_string()
                                ? error["message"].get<std::string>()
                                : std::string();
  return {fmt::format("{} answered {}{}{}", address_, status, words.empty() ? "" : ": ", words)};
}

void KvPoolClient::start(http::ClientRequest call, std::function<void(Result<std::string>)> done) {
  struct Answer {
    int status = 0;
    std::string body;
    bool too_much = false;
  };
  const auto answer = std::make_shared<Answer>();
  client_->start(std::move(call),
                 {.status = [answer](int status) { answer->status = status; },
                  .body =
                      [answer](http::ResponseSink::Clock::time_point, std::string_view piece) {
                        answer->too_much |= answer->body.size() + piece.size() > 2 * kMaxKvBlockBytes;
                        if (!answer->too_much) answer->body += piece;
                      },
                  .end =
                      [this, answer, done = std::move(done)](http::ResponseSink::Clock::time_point,
                                                             const std::string& error) {
                        if (!error.empty()) return done(Error{error});
                        if (answer->too_much) return done(Error{address_ + " answered with too much"});
                        if (answer->status != 200) return done(failure(answer->status, answer->body));
                        done(std::move(answer->body));
                      }});
}

Result<std::string> KvPoolClient::wait(http::ClientRequest call) {
  auto answer = client_->fetch(std::move(call));
  if (!answer) return answer.error();
  if (answer->status != 200) return failure(answer->status, answer->body);
  return std::move(answer->body);
}

Result<KvPoolClient::Hello> KvPoolClient::hello(Timeout timeout) {
  http::ClientRequest asked = call("/kv/hello", "", timeout);
  asked.method              = "GET";
  const auto answer         = client_->fetch(std::move(asked));
  if (!answer) return answer.error();
  Hello hello;
  const PoolJson json = PoolJson::parse(answer->body, nullptr, false);
  const auto number   = [&](const char* field) {
    return json.is_object() && json.contains(field) && json[field].is_number_unsigned()
                 ? std::optional(json[field].get<uint64_t>())
                 : std::nullopt;
  };
  const auto protocol = number("protocol"), seed = number("seed"), budget = number("budget");
  if (answer->status == 401)
    hello.refusal = failure(answer->status, answer->body).message;
  else if (answer->status != 200 || !protocol || !seed || !budget)
    hello.refusal = fmt::format("{} is no KV cache pool: start one with `fathom kv-pool`", address_);
  else if (*protocol != kKvPoolProtocol)
    hello.refusal = fmt::format(
        "the KV cache pool {} is of another version of fathom: start both from one build", address_);
  if (!hello.refusal.empty()) return hello;
  hello.seed   = *seed;
  hello.budget = static_cast<int64_t>(*budget);
  return hello;
}

void KvPoolClient::match(uint64_t seed, std::span<const KvPoolKey> keys, Timeout timeout, Matched done) {
  start(call("/kv/match", keys_message(seed, keys), timeout),
        [count = keys.size(), done = std::move(done)](Result<std::string> answer) {
          if (!answer) return done(answer.error());
          done(flags_of(*answer, count));
        });
}

void KvPoolClient::get(uint64_t seed, std::span<const KvPoolKey> keys, Timeout timeout, Loaded done) {
  start(call("/kv/get", keys_message(seed, keys), timeout),
        [asked = std::vector<KvPoolKey>(keys.begin(), keys.end()),
         done  = std::move(done)](Result<std::string> answer) {
          if (!answer) return done(answer.error());
          done(blocks_of(std::move(answer).value(), asked));
        });
}

Result<std::vector<bool>> KvPoolClient::contains(uint64_t seed, std::span<const KvPoolKey> keys,
                                                 Timeout timeout) {
  const auto answer = wait(call("/kv/contains", keys_message(seed, keys), timeout));
  if (!answer) return answer.error();
  return flags_of(*answer, keys.size());
}

Status KvPoolClient::put(std::string message, Timeout timeout) {
  const auto answer = wait(call("/kv/put", std::move(message), timeout));
  if (!answer) return answer.error();
  return Ok();
}

}  // namespace fathom::serve
