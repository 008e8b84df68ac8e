// The flags of `fathom serve`.
#pragma once

#include <CLI/App.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/engine_flags.h"
#include "http/server.h"

namespace fathom::cli {

struct ServeFlags {
  std::string model, api_key, admin_api_key, date;
  std::vector<std::string> names, origins;
  std::vector<std::string> lora_modules;  // "name=folder"
  bool enable_lora = false;               // changes nothing: vLLM's scripts give it
  http::ServerOptions http{.port = 8000};
  EngineFlags engine;
  double drain_s = 30;
  std::string role, transfer = "tcp";  // role "": a server by itself
  std::vector<std::string> peers;
  std::string kv_pool;  // "": none
  double iteration_timeout_s = 60;
  std::string routing_policy = "worker";
  std::optional<int64_t> max_local_prefill_length;
  std::optional<double> max_pool_utilization;
  bool planner                 = false;
  double adjustment_interval_s = 10, ttft_ms = 0, itl_ms = 0;
  double ttft_slo_ms      = 0;  // 0: no target
  std::string gpu_metrics = "engine";
  std::string profile_dir;  // "": no continuous profiling
  double profile_window_s = 60;
  int64_t profile_keep    = 240;

  std::chrono::milliseconds iteration_timeout() const {
    return std::chrono::milliseconds(static_cast<int64_t>(iteration_timeout_s * 1000));
  }
};

void add_serve_flags(CLI::App& verb, ServeFlags& flags);
// Throws UsageError where flags contradict each other.
void check_serve_flags(const ServeFlags& flags);
// Of --lora-modules. Throws UsageError for one that is no NAME=FOLDER, or has the model's name.
std::vector<engine::EngineConfig::LoraModule> lora_modules_of(const ServeFlags& flags);

}  // namespace fathom::cli
