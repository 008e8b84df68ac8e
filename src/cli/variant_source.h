// The source file of a variant.
#pragma once

#include <string>

#include "core/result.h"
#include "lab/experiment_info.h"

namespace fathom::cli {

// "<root>/<folder>/<variant>.cpp" or .cu. Variants may share a file: the longest leading part of the name
// decides, so tiled_1t and tiled_all are found in tiled.cpp. A variant of kind
// engine is its op: "<root>/src/<op>".
Result<std::string> variant_source(const std::string& root, const lab::ExperimentInfo& experiment,
                                   const std::string& variant);

}  // namespace fathom::cli
