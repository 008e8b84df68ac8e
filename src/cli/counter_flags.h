// The flags of `run --profile` that choose counters and kernels, with the names of Nsight Compute.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/table.h"
#include "lab/run_options.h"
#include "profile/metrics.h"

namespace fathom::cli {

struct CounterFlags {
  bool profile = false, query = false;
  std::string metric_set = "minimal", kernels;
  std::vector<std::string> sections;
};

void add_counter_flags(CLI::App& verb, CounterFlags& flags);

// Sets what the profiler of the run's processes is told. Throws UsageError for a section or a regular
// expression that is none, and for a choice without --profile.
void choose_counters(const CounterFlags& flags, lab::RunOptions& options);

// Throws UsageError as choose_counters does.
profile::CounterChoice counter_choice(const lab::RunOptions& options);

// Every counter that the flags choose, with what it means; of all sets where they choose none.
Table counter_table(const CounterFlags& flags);

}  // namespace fathom::cli
