// The flags that select experiments, shared by `run`, `verify` and `list`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "lab/run_options.h"
#include "lab/target.h"

namespace fathom::cli {

struct TargetFlags {
  std::vector<std::string> names, targets;  // positional, and by --targets
  std::string filter, backend;
  std::vector<std::string> axes, kwargs;
};

void add_target_flags(CLI::App& verb, TargetFlags& flags);

// Throws UsageError for a misspelt target, a filter that is no regular expression, or an axis that a chosen
// experiment lacks.
lab::Targets chosen_targets(const TargetFlags& flags);

// "a b" -> "a", "b": an environment variable holds a list as words.
std::vector<std::string> words(const std::vector<std::string>& texts);

}  // namespace fathom::cli
