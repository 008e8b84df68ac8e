// The routes of `fathom kv-pool`: those of kv_pool_protocol.h for workers, /metrics and /health.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "http/http.h"
#include "http/server.h"
#include "serve/kv_pool.h"

namespace fathom::serve {

class KvPoolApi {
 public:
  // `api_key` "": everybody may use it. `pool` must outlive it.
  KvPoolApi(KvPool& pool, std::string api_key);

  http::Handler handler() const;  // uses this

  // With room for the largest block.
  static http::ServerOptions server_options();

 private:
  void handle(const http::Request& request, http::Exchange& exchange) const;
  void store(std::string_view blocks, http::Exchange& exchange) const;
  std::string load(std::span<const KvPoolKey> keys) const;
  std::string metrics() const;

  KvPool& pool_;
  const std::string api_key_;
  const uint64_t seed_;
  const double started_s_;  // since 1970
};

}  // namespace fathom::serve
