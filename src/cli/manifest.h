// The circumstances of a run: enough to judge its numbers and to repeat it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lab/run_options.h"

namespace fathom::cli {

// argv, commit, compiler and flags of this program, the machine, options, seed and FATHOM_* variables.
nlohmann::json manifest(const std::vector<std::string>& argv, const lab::RunOptions& options,
                        const std::string& started);

}  // namespace fathom::cli
