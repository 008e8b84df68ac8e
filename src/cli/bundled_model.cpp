#include "cli/bundled_model.h"

#include <system_error>
#include <vector>

#include "cli/source_tree.h"
#include "cli/usage.h"

namespace fathom::cli {

namespace fs = std::filesystem;

fs::path model_folder(const std::string& named) {
  if (!named.empty()) return named;
  std::error_code nowhere;
  const fs::path bin = fs::read_symlink("/proc/self/exe", nowhere).parent_path();
  std::vector<fs::path> folders;
  for (const std::string& from : {std::string("."), bin.string()})
    if (const auto root = find_source_tree(from)) folders.push_back(fs::path(*root) / "models/tiny");
  folders.push_back(bin.parent_path() / "share/fathom/models/tiny");
  for (const fs::path& folder : folders)
    if (fs::exists(folder / "config.json", nowhere)) return folder;
  throw UsageError("no model: give --model FOLDER or set FATHOM_MODEL; the bundled one is not in " +
                   folders.front().string());
}

}  // namespace fathom::cli
