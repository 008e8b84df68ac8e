// fathom serve: the OpenAI-compatible server, from start to SIGTERM. With --role it is a worker of a
// disaggregated server, or the router in front of them.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/engine_flags.h"
#include "cli/model_folder.h"
#include "cli/open_file_limit.h"
#include "cli/progress.h"
#include "cli/serve_flags.h"
#include "cli/server_process.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/exit_code.h"
#include "core/expect.h"
#include "engine/engine.h"
#include "http/server.h"
#include "machine/gpu.h"
#include "machine/rapl.h"
#include "profile/cpu_profiler.h"
#include "profile/profile_history.h"
#include "serve/api.h"
#include "serve/embedded_files.h"
#include "serve/gpu_monitor.h"
#include "serve/kv_connector.h"
#include "serve/metrics.h"
#include "serve/request_context.h"
#include "serve/request_router.h"
#include "serve/slo_admission.h"
#include "serve/structured_output.h"
#include "serve/worker_route.h"

namespace fathom::cli {
namespace {

// Ends the process at once where a signal comes while the model is loaded, or no worker is there: nothing has
// been accepted, so nothing is lost, and a host that shuts down does not wait for minutes of loading.
class EndWhileLoading {
 public:
  explicit EndWhileLoading(const StopSignals& signals)
      : watching_([this, &signals] {
          while (!loaded_)
            if (signals.arrived_within(std::chrono::milliseconds(20))) {
              fmt::print(stderr, "stopped before the model was ready\n");
              std::_Exit(kExitOk);
            }
        }) {}
  ~EndWhileLoading() {
    loaded_ = true;
    watching_.join();
  }
  EndWhileLoading(const EndWhileLoading&)            = delete;
  EndWhileLoading& operator=(const EndWhileLoading&) = delete;

 private:
  std::atomic<bool> loaded_ = false;
  std::thread watching_;
};

// The model's default name: that of its folder.
std::string name_of(const std::filesystem::path& folder) {
  const std::string name = std::filesystem::weakly_canonical(folder).filename().string();
  return name.empty() ? "model" : name;
}

// Of "host:port", or of an address with its scheme.
http::Url url_of(const std::string& peer) {
  return value_or_usage_error(
      http::parse_url(peer.find("://") == std::string::npos ? "http://" + peer : peer));
}

std::vector<http::Url> peers_of(const ServeFlags& flags) {
  std::vector<http::Url> urls;
  for (const std::string& peer : flags.peers) urls.push_back(url_of(peer));
  return urls;
}

// What answers the requests, and what it is called by. In the order of construction: workers end before the
// engine that they use.
struct Backend {
  std::unique_ptr<engine::Engine> engine;       // not of a router
  std::optional<model::Checkpoint> checkpoint;  // of a router, for its tokenizer
  std::optional<serve::OutputConstraints> constraints;
  std::unique_ptr<serve::Worker> worker;
  std::unique_ptr<serve::KvConnector> connector;  // with --kv-pool, in front of worker or engine
  std::unique_ptr<serve::RequestRouter> router;
  std::unique_ptr<serve::SloAdmission> admission;  // in front of the one of these that answers
  std::string ready;                               // for people

  const model::Checkpoint& model() const { return engine ? engine->checkpoint() : *checkpoint; }
  engine::Generator& generator() const {
    if (admission) return *admission;
    if (connector) return *connector;
    return router ? static_cast<engine::Generator&>(*router) : worker ? worker->generator() : *engine;
  }
};

void make_constraints(Backend& backend, const std::filesystem::path& folder) {
  const model::Checkpoint& model = backend.model();
  if (!model.tokenizer)
    throw UsageError(
        fmt::format("{} has no tokenizer.json, without which there is no text to serve: put the "
                    "model's own beside its config.json",
                    folder.string()));
  backend.constraints.emplace(*model.tokenizer, model.harmony, model.eos_ids, model.config.vocab_size);
}

void open_role(Backend& backend, const ServeFlags& flags) {
  backend.worker =
      value_or_usage_error(serve::Worker::start(*backend.engine, *backend.constraints,
                                                {.role              = *serve::role_named(flags.role),
                                                 .offload           = {.peers         = peers_of(flags),
                                                                       .api_key       = flags.api_key,
                                                                       .host          = flags.http.host,
                                                                       .shared_memory = flags.transfer == "shm"},
                                                 .iteration_timeout = flags.iteration_timeout()}));
  backend.ready += fmt::format("; role {}, {} prefill worker{} to ask", flags.role, flags.peers.size(),
                               flags.peers.size() == 1 ? "" : "s");
}

void open_worker(Backend& backend, const ServeFlags& flags, const std::filesystem::path& folder) {
  ProgressDisplay display(stderr, terminal_columns(STDERR_FILENO));
  auto config    = flags.engine.chosen();
  config.loading = loading_on(display, folder.string());
  backend.engine = open_engine(folder, config);
  make_constraints(backend, folder);
  backend.ready = fmt::format("ready on {}: {} sequences at once, room for the keys and values of {} tokens",
                              backend.engine->device_name(), backend.engine->config().max_sequences,
                              backend.engine->config().kv_tokens);
  if (!flags.role.empty()) open_role(backend, flags);
  if (flags.kv_pool.empty()) return;
  backend.connector = value_or_usage_error(serve::KvConnector::start(
      *backend.engine, backend.generator(),
      {.pool = url_of(flags.kv_pool), .api_key = flags.api_key, .warn = [](const std::string& what) {
         fmt::print(stderr, "{}\n", what);
       }}));
  backend.ready += fmt::format("; KV cache pool {}", flags.kv_pool);
}

// None: the decode workers decide.
std::optional<serve::DynamicRouting::Options> routing_of(const ServeFlags& flags) {
  if (flags.routing_policy != "dynamic") return {};
  serve::DynamicRouting::Options options;
  if (flags.max_local_prefill_length) options.max_local_prefill_length = *flags.max_local_prefill_length;
  if (flags.max_pool_utilization) {
    options.min_utilization *= *flags.max_pool_utilization / options.max_utilization;
    options.max_utilization = *flags.max_pool_utilization;
  }
  return options;
}

void open_router(Backend& backend, const ServeFlags& flags, const std::filesystem::path& folder) {
  backend.checkpoint = open_checkpoint(folder);
  make_constraints(backend, folder);
  backend.router = value_or_usage_error(serve::RequestRouter::start(
      {.workers           = peers_of(flags),
       .api_key           = flags.api_key,
       .model             = serve::model_fingerprint(*backend.checkpoint),
       .vocab_size        = backend.checkpoint->config.vocab_size,
       .iteration_timeout = flags.iteration_timeout(),
       .dynamic           = routing_of(flags),
       .planner           = flags.planner,
       .plan              = {},
       .adjustment_interval =
           std::chrono::milliseconds(static_cast<int64_t>(flags.adjustment_interval_s * 1000)),
       .ttft_ms = flags.ttft_ms,
       .itl_ms  = flags.itl_ms}));
  fmt::print(stderr, "waiting for one of {} workers\n", flags.peers.size());
  while (!backend.router->wait_for_worker(std::chrono::milliseconds(200))) {
  }
  backend.ready =
      fmt::format("ready through {} worker{}", flags.peers.size(), flags.peers.size() == 1 ? "" : "s");
}

// Makes what the samplers apply; a router passes it on in words, once it is known to be good.
Result<std::unique_ptr<engine::Constraint>> constraint_of(const Backend& backend,
                                                          const serve::ConstraintRequest& request) {
  auto made = backend.constraints->make(request);
  if (!made || !*made || !backend.router) return made;
  return std::unique_ptr<engine::Constraint>(std::make_unique<serve::ForwardedConstraint>(request));
}

// The GPUs that --gpu-metrics asks for; null: none.
std::unique_ptr<serve::GpuMonitor> gpu_monitor(const ServeFlags& flags, const engine::Engine* engine) {
  std::optional<std::vector<std::string>> uuids;  // none: all
  if (flags.gpu_metrics == "engine") {
    if (!engine || !engine->config().gpu) return nullptr;
    uuids.emplace();
    for (int rank = 0; rank < engine->config().tensor_parallel; ++rank)
      if (const auto* gpu = machine::gpu(DeviceId{engine->config().device.ordinal + rank}))
        uuids->push_back(gpu->uuid);
  } else if (flags.gpu_metrics == "none") {
    return nullptr;
  }
  return std::make_unique<serve::GpuMonitor>(
      [read = serve::nvml_reader(std::move(uuids)), told = false]() mutable {
        serve::GpuReadings readings = read();
        if (!readings.why_not.empty() && !std::exchange(told, true))
          fmt::print(stderr, "/metrics tells less of GPUs: {}\n", readings.why_not);
        return readings;
      });
}

void answer_worker_route(const Backend& backend, const serve::RequestContext& context) {
  if (backend.worker) return backend.worker->answer(context);
  if (context.request.path == "/worker/status") return context.respond(backend.router->status());
  context.refuse({.status = 404, .type = "NotFoundError", .message = "a router computes nothing itself"});
}

Status update_weights(const Backend& backend, engine::WeightUpdate update, engine::WeightUpdater::Done done) {
  if (backend.worker || backend.router || backend.connector)
    return Error{
        "weights are not replaced where several processes exchange keys and values (--role, --kv-pool): "
        "restart the workers one after the other, with another --model"};
  return backend.engine->update_weights(std::move(update), std::move(done));
}

// Profiles of this process's CPU time: continuous ones in --profile-dir, and those that clients ask for.
class Profiles {
 public:
  explicit Profiles(const ServeFlags& flags) {
    if (flags.profile_dir.empty()) return;
    const Status keeps = profile::keep_profiles(
        profiler_, {.folder = flags.profile_dir,
                    .window = std::chrono::milliseconds(static_cast<int64_t>(flags.profile_window_s * 1000)),
                    .keep   = flags.profile_keep,
                    .warn   = [](const std::string& what) { fmt::print(stderr, "{}\n", what); }});
    if (!keeps) throw UsageError("--profile-dir " + keeps.error().message);
  }

  Result<std::function<void()>> make(double seconds, serve::ProfileFormat format,
                                     std::function<void(std::string)> done) {
    constexpr int kMostAtOnce = 4;
    const auto place          = std::make_shared<Place>(at_once_);
    if (at_once_ > kMostAtOnce)
      return Error{fmt::format("{} profiles are being made: try again when one has ended", kMostAtOnce)};
    const auto id = profiler_.profile(
        std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9)),
        [place, format, done = std::move(done)](const profile::StackProfile& seen) {
          done(format == serve::ProfileFormat::folded ? profile::to_folded(seen) : profile::to_pprof(seen));
        });
    if (!id) return Error{"the server is going down and makes no more profiles"};
    return std::function<void()>([this, id = *id] { profiler_.cancel(id); });
  }

  void end() { profiler_.end(); }

 private:
  // Of a profile that is being made.
  class Place {
   public:
    explicit Place(std::atomic<int>& taken) : taken_(taken) { ++taken_; }
    ~Place() { --taken_; }
    Place(const Place&)            = delete;
    Place& operator=(const Place&) = delete;

   private:
    std::atomic<int>& taken_;
  };

  std::atomic<int> at_once_ = 0;
  profile::CpuProfiler profiler_;
};

// Profiles that clients wait for are answered before the server goes.
class EndOfProfiles {
 public:
  explicit EndOfProfiles(Profiles& profiles) : profiles_(profiles) {}
  ~EndOfProfiles() { profiles_.end(); }
  EndOfProfiles(const EndOfProfiles&)            = delete;
  EndOfProfiles& operator=(const EndOfProfiles&) = delete;

 private:
  Profiles& profiles_;
};

int serve_model(ServeFlags flags) {
  check_serve_flags(flags);
  raise_open_file_limit();
  leave_no_zombies();
  const StopSignals signals;
  const auto folder = model_folder(flags.model);
  if (flags.names.empty()) flags.names = {name_of(folder)};
  flags.engine.config.lora_modules = lora_modules_of(flags);
  Profiles profiles(flags);
  serve::Api api({.model_names     = flags.names,
                  .lora_modules    = flags.engine.config.lora_modules,
                  .api_key         = flags.api_key,
                  .admin_api_key   = flags.admin_api_key,
                  .allowed_origins = flags.origins,
                  .version         = FATHOM_VERSION,
                  .page            = std::string(serve::page_html()),
                  .openapi         = std::string(serve::openapi_json()),
                  .cpu_profile     = [&profiles](double seconds, serve::ProfileFormat format, auto done) {
                    return profiles.make(seconds, format, std::move(done));
                  }});

  // Exchanges in flight refer to these, so they must outlive the server.
  Backend backend;
  machine::RaplCounters cpus;
  std::unique_ptr<serve::ServeMetrics> metrics;
  std::unique_ptr<serve::GpuMonitor> gpus;
  const auto server = value_or_usage_error(http::Server::listen(flags.http, api.handler()));
  const EndOfProfiles end_of_profiles(profiles);
  const std::string address = http::to_string({.host = flags.http.host, .port = server->port()});
  fmt::print(stderr, "Listening on {}; loading {} (503 until ready)\n", address, folder.string());

  {
    const EndWhileLoading end(signals);
    flags.role == "router" ? open_router(backend, flags, folder) : open_worker(backend, flags, folder);
  }
  if (flags.ttft_slo_ms > 0)
    backend.admission = std::make_unique<serve::SloAdmission>(
        backend.generator(), serve::SloLimit::Options{.target_s = flags.ttft_slo_ms / 1e3});
  engine::Generator& generator = backend.generator();
  gpus                         = gpu_monitor(flags, backend.engine.get());
  serve::ServeMetrics::Sources sources{.http = [&server = *server] { return server.stats(); }};
  if (!cpus.empty()) sources.cpu_energy = [&cpus] { return cpus.read(); };
  if (backend.router) sources.router = [&router = *backend.router] { return router.router_stats(); };
  if (backend.connector)
    sources.kv_connector = [&connector = *backend.connector] { return connector.connector_stats(); };
  if (backend.admission) sources.slo = [&admission = *backend.admission] { return admission.slo_stats(); };
  metrics = std::make_unique<serve::ServeMetrics>(
      serve::ServeMetrics::Model{.name            = flags.names.front(),
                                 .max_context     = generator.max_context(),
                                 .page_tokens     = backend.engine ? backend.engine->config().page_size : 0,
                                 .shares_prefixes = !backend.engine || backend.engine->config().prefix_cache},
      std::move(sources));
  serve::ApiModel model{
      .generator    = generator,
      .checkpoint   = backend.model(),
      .defaults     = backend.model().sampling,
      .current_date = flags.date,
      .constraint = [&](const serve::ConstraintRequest& request) { return constraint_of(backend, request); },
      .metrics    = metrics.get(),
      .gpus       = gpus.get(),
      .iteration_timeout = flags.iteration_timeout()};
  model.update_weights = [&](engine::WeightUpdate update, engine::WeightUpdater::Done done) {
    return update_weights(backend, std::move(update), std::move(done));
  };
  if (!flags.role.empty())
    model.worker = [&](const serve::RequestContext& context) { answer_worker_route(backend, context); };
  api.ready(std::move(model));
  fmt::print(stderr,
             "{} is {}\nChat on {}/ or through {}/v1; Ctrl-C or SIGTERM stops it after running requests "
             "finish, a second one at once\n",
             flags.names.front(), backend.ready, address, address);

  signals.wait();
  const int64_t left = generator.stats().running + generator.stats().waiting;
  fmt::print(stderr, "draining: {} request{} to finish, {:.0f} s at most\n", left, left == 1 ? "" : "s",
             flags.drain_s);
  api.drain();
  profiles.end();
  server->stop_listening();
  const auto end     = std::chrono::steady_clock::now() + std::chrono::duration<double>(flags.drain_s);
  using Milliseconds = std::chrono::milliseconds;
  bool drained       = false;
  while (!drained && std::chrono::steady_clock::now() < end && !signals.arrived())
    drained = generator.drain(Milliseconds(100)) && server->wait_until_idle(Milliseconds(100));
  fmt::print(stderr, "{}\n", drained ? "all answered" : "some requests were cut short");
  if (gpus) gpus->end();  // its answers tell of the server, which goes next
  return kExitOk;
}

}  // namespace

void add_serve(CLI::App& app, int& exit_code) {
  auto flags     = std::make_shared<ServeFlags>();
  CLI::App& verb = *app.add_subcommand("serve", "An OpenAI-compatible server for a model");
  add_serve_flags(verb, *flags);
  verb.callback([flags, &exit_code] { exit_code = serve_model(*flags); });
}

}  // namespace fathom::cli
