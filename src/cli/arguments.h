// Additions to CLI11: an environment variable for every flag, and a suggestion for a misspelt flag or verb.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace fathom::cli {

// Every long flag except --help and --version can be set by a variable: --artifacts-dir by
// FATHOM_ARTIFACTS_DIR.
void add_environment_variables(CLI::App& app);

// "did you mean '--quick'?" for arguments that `app` did not understand; empty when no name is close.
std::string suggestion(const CLI::App& app, const std::vector<std::string>& arguments);

}  // namespace fathom::cli
