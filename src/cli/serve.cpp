// fathom serve: the OpenAI-compatible server, from start to SIGTERM.
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/engine_flags.h"
#include "cli/model_folder.h"
#include "cli/number_check.h"
#include "cli/open_file_limit.h"
#include "cli/progress.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/exit_code.h"
#include "core/expect.h"
#include "engine/engine.h"
#include "http/server.h"
#include "serve/api.h"
#include "serve/embedded_files.h"
#include "serve/metrics.h"
#include "serve/structured_output.h"

namespace fathom::cli {
namespace {

struct ServeFlags {
  std::string model, api_key, date;
  std::vector<std::string> names, origins;
  http::ServerOptions http{.port = 8000};
  EngineFlags engine;
  double drain_s = 30;
};

// Blocks SIGINT and SIGTERM so that one thread can wait for them. Construct it before any other thread
// starts: threads inherit the signal mask.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    FATHOM_EXPECT(pthread_sigmask(SIG_BLOCK, &set_, &before_) == 0, "signals can be blocked");
  }
  ~StopSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  StopSignals(const StopSignals&)            = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  void wait() const {
    int signal = 0;
    sigwait(&set_, &signal);
  }
  bool arrived() const {
    const timespec now{};
    return sigtimedwait(&set_, nullptr, &now) > 0;
  }

 private:
  sigset_t set_, before_;
};

std::string address_of(const ServeFlags& flags, uint16_t port) {
  const bool v6 = flags.http.host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", v6 ? "[" : "", flags.http.host, v6 ? "]" : "", port);
}

// The model's default name: that of its folder.
std::string name_of(const std::filesystem::path& folder) {
  const std::string name = std::filesystem::weakly_canonical(folder).filename().string();
  return name.empty() ? "model" : name;
}

int serve_model(ServeFlags flags) {
  raise_open_file_limit();
  const StopSignals signals;
  const auto folder = model_folder(flags.model);
  if (flags.names.empty()) flags.names = {name_of(folder)};
  serve::Api api({.model_names     = flags.names,
                  .api_key         = flags.api_key,
                  .allowed_origins = flags.origins,
                  .version         = FATHOM_VERSION,
                  .page            = std::string(serve::page_html()),
                  .openapi         = std::string(serve::openapi_json())});

  // Exchanges in flight refer to these, so they must outlive the server.
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<serve::ServeMetrics> metrics;
  std::optional<serve::OutputConstraints> constraints;
  const auto server = value_or_usage_error(http::Server::listen(flags.http, api.handler()));
  fmt::print(stderr, "{} answers; loading {}\n", address_of(flags, server->port()), folder.string());

  ProgressDisplay display(stderr, terminal_columns(STDERR_FILENO));
  auto config                         = flags.engine.chosen();
  config.loading                      = loading_on(display, folder.string());
  engine                              = open_engine(folder, config);
  const model::Checkpoint& checkpoint = engine->checkpoint();
  if (!checkpoint.tokenizer)
    throw UsageError(
        fmt::format("{} has no tokenizer.json, without which there is no text to serve: put the "
                    "model's own beside its config.json",
                    folder.string()));
  constraints.emplace(*checkpoint.tokenizer, checkpoint.harmony, checkpoint.eos_ids,
                      checkpoint.config.vocab_size);
  metrics = std::make_unique<serve::ServeMetrics>(
      serve::ServeMetrics::Model{.name            = flags.names.front(),
                                 .max_context     = engine->max_context(),
                                 .page_tokens     = engine->config().page_size,
                                 .shares_prefixes = engine->config().prefix_cache},
      [&server = *server] { return server.stats(); });
  api.ready(
      {.generator    = *engine,
       .checkpoint   = checkpoint,
       .defaults     = checkpoint.sampling,
       .current_date = flags.date,
       .constraint   = [&](const serve::ConstraintRequest& request) { return constraints->make(request); },
       .metrics      = metrics.get()});
  fmt::print(stderr,
             "{} is ready on {}: {} sequences at once, room for the keys and values of {} tokens\n"
             "Chat on {}/ or through {}/v1; SIGTERM or Ctrl-C ends it, twice at once\n",
             flags.names.front(), engine->device_name(), engine->config().max_sequences,
             engine->config().kv_tokens, address_of(flags, server->port()),
             address_of(flags, server->port()));

  signals.wait();
  const int64_t left = engine->stats().running + engine->stats().waiting;
  fmt::print(stderr, "draining: {} request{} to finish, {:.0f} s at most\n", left, left == 1 ? "" : "s",
             flags.drain_s);
  api.drain();
  server->stop_listening();
  const auto end     = std::chrono::steady_clock::now() + std::chrono::duration<double>(flags.drain_s);
  using Milliseconds = std::chrono::milliseconds;
  bool drained       = false;
  while (!drained && std::chrono::steady_clock::now() < end && !signals.arrived())
    drained = engine->drain(Milliseconds(100)) && server->wait_until_idle(Milliseconds(100));
  fmt::print(stderr, "{}\n", drained ? "all answered" : "some requests were cut short");
  return kExitOk;
}

}  // namespace

void add_serve(CLI::App& app, int& exit_code) {
  auto flags     = std::make_shared<ServeFlags>();
  CLI::App& verb = *app.add_subcommand("serve", "An OpenAI-compatible server for a model");
  verb.add_option("--model", flags->model,
                  "Folder with config.json, *.safetensors and tokenizer.json (default: the bundled model)");
  verb.add_option("--served-model-name", flags->names, "What clients call it (default: its folder's name)");
  verb.add_option("--host", flags->http.host, "Address to listen on; 0.0.0.0 is all")->capture_default_str();
  verb.add_option("--port", flags->http.port, "0: any that is free")
      ->check(whole_between(0, 65535))
      ->capture_default_str();
  verb.add_option("--api-key", flags->api_key, "Clients must send it as a bearer token");
  verb.add_option("--allowed-origins", flags->origins,
                  "Pages elsewhere that may call from a browser, e.g. https://example.org, or *")
      ->delimiter(',');
  verb.add_option("--date", flags->date, "Tell the model this date, e.g. 2026-11-21");
  verb.add_option("--drain-timeout", flags->drain_s, "Seconds for requests to finish after SIGTERM")
      ->check(between(0, 86400))
      ->capture_default_str();
  verb.add_option("--max-connections", flags->http.max_connections, "Open at once; more are told 503")
      ->check(whole_at_least(1, int64_t{1} << 20))
      ->capture_default_str();
  verb.add_option("--max-body-bytes", flags->http.max_body_bytes, "Of a request")
      ->check(whole_at_least(1, int64_t{1} << 30))
      ->capture_default_str();
  verb.add_option("--io-threads", flags->http.io_threads, "Threads for connections")
      ->check(whole_between(1, 256))
      ->capture_default_str();
  add_engine_flags(verb, flags->engine);
  verb.callback([flags, &exit_code] { exit_code = serve_model(*flags); });
}

}  // namespace fathom::cli
