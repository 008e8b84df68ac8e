// A whole file at once.
#pragma once

#include <filesystem>
#include <string>

#include "core/result.h"

namespace fathom {

// An error names the file and the cause. A folder is an error too.
Result<std::string> read_file(const std::filesystem::path& path);

}  // namespace fathom
