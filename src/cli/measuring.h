// What `run` and `verify` share: the flags of a measurement and the run itself, from selection to record.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/selection.h"
#include "lab/record.h"
#include "lab/supervisor.h"

namespace fathom::cli {

struct MeasuringFlags {
  SelectionFlags selection;
  lab::RunOptions options;
  std::string memory_limit;  // "4G"
};

void add_measuring_flags(CLI::App& verb, MeasuringFlags& flags);

// Runs the selection with progress on stderr; labels that stand for something planned become typed skips.
// `started` and `manifest` are set from the beginning, and `after_each` sees the record as it grows.
lab::RunRecord measure(const MeasuringFlags& flags, const lab::Targets& targets, const std::string& label,
                       const std::vector<std::string>& argv,
                       const std::function<void(const lab::RunRecord&)>& after_each);

// What a child profiles with (lab/supervisor.h).
std::unique_ptr<lab::Profiler> profiler_for(const std::string& set, const std::string& folder);

// argv of this process; main() sets it, manifests hold it.
std::vector<std::string>& program_arguments();

}  // namespace fathom::cli
