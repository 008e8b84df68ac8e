#include "cli/serve_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/number_check.h"
#include "cli/usage_error.h"

namespace fathom::cli {

void check_serve_flags(const ServeFlags& flags) {
  if (flags.role.empty() && !flags.peers.empty())
    throw UsageError("--peer needs --role: decode asks its peers for prefills, router sends them requests");
  if (flags.role == "router" && flags.peers.empty())
    throw UsageError("a router needs workers: --peer HOST:PORT, once for each");
  if (flags.role == "router" && !flags.kv_pool.empty())
    throw UsageError("a router has no keys and values: give --kv-pool to its workers");
  if (flags.role == "prefill" && !flags.peers.empty())
    throw UsageError("a prefill worker asks nobody: give --peer to the decode workers");
  if (flags.role != "router" && flags.routing_policy != "worker")
    throw UsageError("--routing-policy is the router's: give it to the process with --role router");
  if (!flags.lora_modules.empty() && (!flags.role.empty() || !flags.kv_pool.empty()))
    throw UsageError(
        "--lora-modules is for a server by itself: blocks of keys and values that workers exchange (--role, "
        "--kv-pool) do not say of which adapter they are");
  if (flags.role != "router" && flags.planner)
    throw UsageError("--planner is the router's: give it to the process with --role router");
  if (!flags.planner && (flags.ttft_ms > 0 || flags.itl_ms > 0))
    throw UsageError("--ttft and --itl are targets of the planner: add --planner");
  if (flags.routing_policy != "dynamic" && (flags.max_local_prefill_length || flags.max_pool_utilization))
    throw UsageError("--max-local-prefill-length and --max-pool-utilization need --routing-policy dynamic");
}

std::vector<engine::EngineConfig::LoraModule> lora_modules_of(const ServeFlags& flags) {
  std::vector<engine::EngineConfig::LoraModule> modules;
  for (const std::string& text : flags.lora_modules) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
      throw UsageError(fmt::format("--lora-modules takes NAME=FOLDER, not '{}'", text));
    modules.push_back({.name = text.substr(0, equals), .path = text.substr(equals + 1)});
    if (std::ranges::find(flags.names, modules.back().name) != flags.names.end())
      throw UsageError(fmt::format("--lora-modules: the model itself is called '{}' (--served-model-name)",
                                   modules.back().name));
  }
  return modules;
}

void add_serve_flags(CLI::App& verb, ServeFlags& flags) {
  verb.add_option("--model", flags.model,
                  "Folder with config.json, *.safetensors and tokenizer.json (default: the bundled model)");
  verb.add_option("--served-model-name", flags.names, "What clients call it (default: its folder's name)");
  verb.add_option("--lora-modules", flags.lora_modules,
                  "NAME=FOLDER of LoRA adapters (PEFT's files), which clients name as models; on CPUs");
  verb.add_flag("--enable-lora", flags.enable_lora, "As for vLLM; --lora-modules alone does it")->group("");
  verb.add_option("--host", flags.http.host, "Address to listen on; 0.0.0.0 is all")->capture_default_str();
  verb.add_option("--port", flags.http.port, "0: any that is free")
      ->check(whole_between(0, 65535))
      ->capture_default_str();
  verb.add_option("--api-key", flags.api_key, "Clients must send it as a bearer token");
  verb.add_option("--admin-api-key", flags.admin_api_key,
                  "Opens /update_weights_from_disk, to whoever sends this key as a bearer token");
  verb.add_option("--weight-version", flags.engine.config.weight_version,
                  "Reported with answers until the weights are replaced")
      ->capture_default_str();
  verb.add_option("--allowed-origins", flags.origins,
                  "Pages elsewhere that may call from a browser, e.g. https://example.org, or *")
      ->delimiter(',');
  verb.add_option("--date", flags.date, "Tell the model this date, e.g. 2026-11-21");
  verb.add_option("--drain-timeout", flags.drain_s, "Seconds for requests to finish after SIGTERM")
      ->check(between(0, 86400))
      ->capture_default_str();
  verb.add_option("--max-connections", flags.http.max_connections, "Open at once; more are told 503")
      ->check(whole_at_least(1, int64_t{1} << 20))
      ->capture_default_str();
  verb.add_option("--max-body-bytes", flags.http.max_body_bytes, "Largest request body, in bytes")
      ->check(whole_at_least(1, int64_t{1} << 30))
      ->capture_default_str();
  verb.add_option("--io-threads", flags.http.io_threads, "Threads for connections")
      ->check(whole_between(1, 256))
      ->capture_default_str();
  verb.add_option(
          "--role", flags.role,
          "Of a server of several processes: prefill computes prompts for decode; decode writes answers; "
          "both does either; router takes requests and sends them to workers (docs/serving.md)")
      ->check(CLI::IsMember({"prefill", "decode", "both", "router"}))
      ->group("Workers");
  verb.add_option(
          "--peer", flags.peers,
          "HOST:PORT, once for each: of decode and both, prefill workers to ask; of router, its workers")
      ->group("Workers");
  verb.add_option(
          "--kv-pool", flags.kv_pool,
          "HOST:PORT of a `fathom kv-pool`: take keys and values of prompts from there, and bring them there")
      ->group("Workers");
  verb.add_option("--transfer", flags.transfer,
                  "How keys and values come from prefill workers: tcp, or shm between processes of one host")
      ->check(CLI::IsMember({"tcp", "shm"}))
      ->capture_default_str()
      ->group("Workers");
  verb.add_option(
          "--engine-iteration-timeout", flags.iteration_timeout_s,
          "Seconds: an engine that has work and ends no step for longer is stalled. /health fails then, "
          "and a router takes its requests elsewhere")
      ->check(between(0.1, 86400))
      ->capture_default_str()
      ->group("Workers");
  verb.add_option("--routing-policy", flags.routing_policy,
                  "Of router. worker: decode workers decide which prompts they offload; dynamic: the router "
                  "does, by the length of the prompt and the load of both pools")
      ->check(CLI::IsMember({"worker", "dynamic"}))
      ->capture_default_str()
      ->group("Workers");
  verb.add_option("--max-local-prefill-length", flags.max_local_prefill_length,
                  "Of dynamic: prompts with more uncached tokens go to prefill workers (default: 4096)")
      ->check(whole_at_least(0, int64_t{1} << 30))
      ->group("Workers");
  verb.add_option(
          "--max-pool-utilization", flags.max_pool_utilization,
          "Of dynamic: from this load on a pool is busy, until 3/4 of it (default: 0.8). A busy decode "
          "pool hands prompts of 256 uncached tokens over; a busy prefill pool gets none")
      ->check(between(0, 1))
      ->group("Workers");
  verb.add_flag(
          "--planner", flags.planner,
          "Of router: moves workers between prefill and decode as the load shifts; they must reach each "
          "other at the router's addresses of them")
      ->group("Workers");
  verb.add_option("--adjustment-interval", flags.adjustment_interval_s,
                  "Of --planner: seconds between two plans. A worker moves after three that agree")
      ->check(between(0.05, 86400))
      ->capture_default_str()
      ->group("Workers");
  verb.add_option("--ttft", flags.ttft_ms,
                  "Of --planner: target in ms for the P95 of the time to the first token (default: none)")
      ->check(between(0, 1e9))
      ->group("Workers");
  verb.add_option("--itl", flags.itl_ms,
                  "Of --planner: target in ms for the P95 of the time between tokens (default: none)")
      ->check(between(0, 1e9))
      ->group("Workers");
  verb.add_option(
          "--ttft-slo-ms", flags.ttft_slo_ms,
          "Target for the P95 of the time to first token, in ms. The server limits concurrent requests to "
          "meet it and answers 429 beyond (default: off)")
      ->check(between(0.001, 1e9));
  verb.add_option(
          "--gpu-metrics", flags.gpu_metrics,
          "GPUs in /metrics: engine, those that the model runs on; all of the host, where nothing else "
          "exports them; none, where the DCGM exporter does")
      ->check(CLI::IsMember({"engine", "all", "none"}))
      ->capture_default_str();
  verb.add_option(
      "--profile-dir", flags.profile_dir,
      "Continuous profiling: a folder for CPU profiles with call stacks in pprof's format, one for "
      "each --profile-window");
  verb.add_option("--profile-window", flags.profile_window_s, "Seconds of a profile in --profile-dir")
      ->check(between(1, 86400))
      ->capture_default_str();
  verb.add_option("--profile-keep", flags.profile_keep, "Profiles that --profile-dir keeps, the latest")
      ->check(whole_at_least(1))
      ->capture_default_str();
  add_engine_flags(verb, flags.engine);
}

}  // namespace fathom::cli
