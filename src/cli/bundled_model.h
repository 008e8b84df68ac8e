// The small model that comes with Fathom.
#pragma once

#include <filesystem>
#include <string>

namespace fathom::cli {

// `named`, or the bundled model's folder where it is empty: models/tiny of the source tree around the current
// folder or the program, else share/fathom/models/tiny beside the program's bin. Throws UsageError where
// there is none.
std::filesystem::path model_folder(const std::string& named);

}  // namespace fathom::cli
