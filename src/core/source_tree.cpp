#include "core/source_tree.h"

#include <filesystem>

namespace fathom {

std::optional<std::string> find_source_tree(const std::string& from) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (fs::path folder = fs::absolute(from, error).lexically_normal(); !error;
       folder          = folder.parent_path()) {
    if (fs::exists(folder / "experiments/chapters.toml", error)) {
      // A relative path where there is one: people read it.
      const fs::path relative = fs::proximate(folder, error);
      return error ? folder.string() : relative.string();
    }
    if (folder == folder.parent_path()) break;
  }
  return std::nullopt;
}

}  // namespace fathom
