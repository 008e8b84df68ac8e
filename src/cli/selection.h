// What to run: the flags shared by `run`, `verify` and `list`, and what they select.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "lab/supervisor.h"
#include "lab/target.h"

namespace fathom::cli {

struct SelectionFlags {
  std::vector<std::string> names, targets;  // positional, and by --targets
  std::string filter, backend;
  std::vector<std::string> axes, kwargs;
};

void add_selection_flags(CLI::App& verb, SelectionFlags& flags);

// Throws UsageError: a misspelt target, a filter that is no regular expression, an axis that a chosen
// experiment lacks.
lab::Targets selected(const SelectionFlags& flags);

// "a  b" -> "a", "b": environment variables hold lists as words.
std::vector<std::string> words(const std::vector<std::string>& texts);

}  // namespace fathom::cli
