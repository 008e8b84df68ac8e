// Shared by `fathom bench serve` and `fathom bench throughput`: workload flags with the names of `vllm
// bench`, the progress display and Ctrl-C.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/progress.h"
#include "engine/config.h"
#include "engine/generator.h"
#include "load/run.h"
#include "load/workload.h"

namespace fathom::cli {

// Starts an engine on the model in a folder. Throws UsageError if the folder holds no model.
using EngineFactory = std::function<std::unique_ptr<engine::Generator>(const std::string& model_folder,
                                                                       const engine::EngineConfig& config)>;

void add_bench_collectives(CLI::App& bench, int& exit_code);
void add_bench_latency(CLI::App& bench, int& exit_code);
void add_bench_serve(CLI::App& bench, int& exit_code);
void add_bench_throughput(CLI::App& bench, int& exit_code, EngineFactory make_engine);

struct WorkloadFlags {
  std::string dataset = "random", path;
  int64_t num_prompts = 0;                // 0: 1000, or as many as the file has
  int64_t input_len = 0, output_len = 0;  // 0: the dataset's own
  int64_t random_input_len = 1024, random_output_len = 128, random_prefix_len = 0;
  double random_range_ratio = 0;
  int64_t prefix_len = 256, suffix_len = 256, num_prefixes = 10, prefix_output_len = 128;
  int64_t custom_output_len = 256;
  int64_t random_vocab      = 800;
  uint64_t seed             = 0;
};

void add_workload_flags(CLI::App& verb, WorkloadFlags& flags);
// Throws UsageError if flags contradict each other.
load::WorkloadSpec workload_spec(const WorkloadFlags& flags);
int64_t workload_count(const WorkloadFlags& flags);  // for make_workload()

// Options that show a run's progress on standard error and stop the run after Ctrl-C.
load::RunOptions load_options(ProgressDisplay& display, std::string what, int64_t max_concurrency);

std::string local_timestamp();  // "20260502-101500", local time

}  // namespace fathom::cli
