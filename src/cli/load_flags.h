// What `fathom bench serve` and `fathom bench throughput` have in common: the flags of their workloads, by
// the names of `vllm bench`, their progress and Ctrl-C.
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
#include "serve/load_run.h"
#include "serve/workload.h"

namespace fathom::cli {

// The engine that answers with the model in a folder. Throws UsageError where the folder has none.
using EngineFactory = std::function<std::unique_ptr<engine::Generator>(const std::string& model_folder,
                                                                       const engine::EngineConfig& config)>;

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
// Throws UsageError where flags contradict one another.
serve::WorkloadSpec workload_spec(const WorkloadFlags& flags);
int64_t workload_count(const WorkloadFlags& flags);  // for make_workload()

// While it lives, the first Ctrl-C is a wish to stop; the second ends the program as usual.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&)            = delete;
  Interruption& operator=(const Interruption&) = delete;

  static bool wished();
};

// Shows a run on standard error and stops it when Ctrl-C was pressed.
serve::LoadOptions watched(ProgressDisplay& display, std::string what, int64_t max_concurrency);

std::string date_of_today();  // "20260502-101500", local time

}  // namespace fathom::cli
