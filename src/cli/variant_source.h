// Where the source of a variant lies.
#pragma once

#include <string>

#include "core/result.h"
#include "lab/experiment.h"

namespace fathom::cli {

// "<root>/<folder>/<variant>.cpp" or .cu. A variant that shares its file with others is found by the longest
// leading part of its name: tiled_1t and tiled_all in tiled.cpp.
Result<std::string> variant_source(const std::string& root, const lab::ExperimentInfo& experiment,
                                   const std::string& variant);

}  // namespace fathom::cli
