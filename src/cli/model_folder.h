// The folder that --model names.
#pragma once

#include <filesystem>
#include <string>

namespace fathom::cli {

// `named`, or the bundled model's folder if it is empty (model/bundled_model.h). Throws UsageError if there
// is none.
std::filesystem::path model_folder(const std::string& named);

}  // namespace fathom::cli
