// Additions to CLI11: an environment variable for every flag, a suggestion for a misspelt flag or verb, and
// vLLM's short flags of several letters.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace fathom::cli {

// Every long flag except --help and --version can be set by a variable: --artifacts-dir by
// FATHOM_ARTIFACTS_DIR.
void add_environment_variables(CLI::App& app);

// Kubernetes sets FATHOM_PORT, to tcp://10.0.0.1:80 for instance, in the pods beside a Service named fathom.
// That is no value of --port: this removes it.
void forget_service_links();

// The arguments after the program's name with -tp as --tensor-parallel-size and -pp as
// --pipeline-parallel-size. Those after a lone -- are another program's, and stay as they are.
std::vector<std::string> with_long_names(int argc, const char* const* argv);

// "did you mean '--quick'?" for arguments that `app` did not understand; empty when no name is close.
std::string suggestion(const CLI::App& app, const std::vector<std::string>& arguments);

}  // namespace fathom::cli
