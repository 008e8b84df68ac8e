#include "cli/source_tree.h"

#include <filesystem>

namespace fathom::cli {

std::optional<std::string> find_source_tree(const std::string& from) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (fs::path folder = fs::absolute(from, error).lexically_normal(); !error;
       folder          = folder.parent_path()) {
    if (fs::exists(folder / "experiments/chapters.toml", error)) {
      // Short where it can be: what is printed is read.
      const fs::path relative = fs::proximate(folder, error);
      return error ? folder.string() : relative.string();
    }
    if (folder == folder.parent_path()) break;
  }
  return std::nullopt;
}

std::string default_results() {
  const auto root = find_source_tree();
  return root && *root != "." ? *root + "/results" : "results";
}

}  // namespace fathom::cli
