// A worker's way to a KV cache pool: the calls of kv_pool_protocol.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "http/client.h"
#include "serve/kv_pool_protocol.h"

namespace fathom::serve {

// Blocks that came with one answer, checked. `blocks[i].bytes` lie in `message`.
struct LoadedBlocks {
  std::string message;
  std::vector<BlockView> blocks;
};

// Calls from any thread. Errors say what the pool said, or that it did not answer in time.
class KvPoolClient {
 public:
  static Result<std::unique_ptr<KvPoolClient>> open(const http::Url& pool, const std::string& api_key);

  using Timeout = std::chrono::nanoseconds;

  struct Hello {
    uint64_t seed  = 0;
    int64_t budget = 0;   // bytes
    std::string refusal;  // "", or why this server is no pool for us
  };
  // An error where nobody answers.
  Result<Hello> hello(Timeout timeout);

  // Answers come on a thread of this, which must not be blocked, and none after stop().
  using Matched = std::function<void(Result<std::vector<bool>>)>;
  void match(uint64_t seed, std::span<const KvPoolKey> keys, Timeout timeout, Matched done);
  // As many blocks as fit in a message; a block that is not there has no bytes.
  using Loaded = std::function<void(Result<std::shared_ptr<const LoadedBlocks>>)>;
  void get(uint64_t seed, std::span<const KvPoolKey> keys, Timeout timeout, Loaded done);

  // These wait for the answer.
  Result<std::vector<bool>> contains(uint64_t seed, std::span<const KvPoolKey> keys, Timeout timeout);
  Status put(std::string message, Timeout timeout);  // of block_message() and append_block()

  // Ends all calls. Nobody may wait in one of the functions above.
  void stop() { client_->stop(); }
  const std::string& address() const { return address_; }

 private:
  KvPoolClient(std::unique_ptr<http::Client> client, std::string address, std::string api_key);
  http::ClientRequest call(std::string target, std::string body, Timeout timeout) const;
  void start(http::ClientRequest call, std::function<void(Result<std::string>)> done);
  Result<std::string> wait(http::ClientRequest call);
  Error failure(int status, const std::string& body) const;

  const std::unique_ptr<http::Client> client_;
  const std::string address_, api_key_;
};

}  // namespace fathom::serve
