// What the command line gets in addition to what CLI11 gives: an environment variable for every flag, and the
// nearest flag or verb for a misspelt one.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace fathom::cli {

// --artifacts-dir of any verb can be set by FATHOM_ARTIFACTS_DIR, and so on for every long flag but --help
// and
// --version.
void add_environment_variables(CLI::App& app);

// "did you mean '--quick'?" for what `app` did not understand; empty when nothing is near.
std::string suggestion(const CLI::App& app, const std::vector<std::string>& arguments);

}  // namespace fathom::cli
