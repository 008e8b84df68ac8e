// Runs experiments for `run` and `verify`: the shared flags, and the way from targets to a record.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/target_flags.h"
#include "lab/profiler.h"
#include "lab/record.h"
#include "lab/run_options.h"

namespace fathom::cli {

struct ExperimentFlags {
  TargetFlags selection;
  lab::RunOptions options;
  std::string memory_limit;  // "4G"
};

void add_experiment_flags(CLI::App& verb, ExperimentFlags& flags);

// Runs the targets with progress on stderr; labels of planned experiments become typed skips. `after_each`
// gets the record after each experiment, with `started` and `manifest` set from the first call.
lab::RunRecord run_experiments(const ExperimentFlags& flags, const lab::Targets& targets,
                               const std::string& label, const std::vector<std::string>& argv,
                               const std::function<void(const lab::RunRecord&)>& after_each);

// Of what run_experiments() returned: lab::exit_code(), or kExitCrash where it was interrupted.
int run_exit_code(const lab::RunRecord& run);

// The profiler of a child process (lab/child_main.h).
std::unique_ptr<lab::Profiler> profiler_for(const lab::RunOptions& options);

// argv of this process. main() sets it; the manifest records it.
std::vector<std::string>& program_arguments();

}  // namespace fathom::cli
