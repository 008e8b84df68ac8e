// The small model that comes with Fathom.
#pragma once

#include <filesystem>

#include "core/result.h"

namespace fathom::model {

// models/tiny of the source tree around the current folder or around the program, else
// share/fathom/models/tiny beside the program's bin folder.
Result<std::filesystem::path> bundled_model_folder();

}  // namespace fathom::model
