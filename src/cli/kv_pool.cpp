// fathom kv-pool: blocks of keys and values that workers share, until SIGTERM.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "cli/number_check.h"
#include "cli/open_file_limit.h"
#include "cli/server_process.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/exit_code.h"
#include "http/client.h"
#include "http/server.h"
#include "serve/kv_pool.h"
#include "serve/kv_pool_api.h"

namespace fathom::cli {
namespace {

struct KvPoolFlags {
  std::string host = "127.0.0.1", api_key;
  uint16_t port    = 8200;
  uint64_t bytes   = uint64_t{4} << 30;
};

int serve_pool(const KvPoolFlags& flags) {
  raise_open_file_limit();
  leave_no_zombies();
  const StopSignals signals;
  serve::KvPool pool(static_cast<int64_t>(flags.bytes));
  const serve::KvPoolApi api(pool, flags.api_key);
  http::ServerOptions options = serve::KvPoolApi::server_options();
  options.host                = flags.host;
  options.port                = flags.port;
  const auto server           = value_or_usage_error(http::Server::listen(options, api.handler()));
  fmt::print(stderr, "Listening on {}; room for {} bytes of keys and values\n",
             http::to_string({.host = flags.host, .port = server->port()}), flags.bytes);
  signals.wait();
  return kExitOk;
}

}  // namespace

void add_kv_pool(CLI::App& app, int& exit_code) {
  auto flags     = std::make_shared<KvPoolFlags>();
  CLI::App& verb = *app.add_subcommand(
      "kv-pool", "Keys and values that several `fathom serve --kv-pool` share (docs/serving.md)");
  verb.add_option("--host", flags->host, "Address to listen on; 0.0.0.0 is all")->capture_default_str();
  verb.add_option("--port", flags->port, "0: any that is free")
      ->check(whole_between(0, 65535))
      ->capture_default_str();
  verb.add_option(
          "--bytes", flags->bytes,
          "Memory for keys and values: a number, or e.g. 16GiB. What was used least recently gives way")
      ->transform(CLI::AsSizeValue(true))
      ->check(whole_between(1, int64_t{1} << 50))
      ->capture_default_str();
  verb.add_option("--api-key", flags->api_key, "Workers must send it: their own --api-key");
  verb.callback([flags, &exit_code] { exit_code = serve_pool(*flags); });
}

}  // namespace fathom::cli
