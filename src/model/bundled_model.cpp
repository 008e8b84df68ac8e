#include "model/bundled_model.h"

#include <string>
#include <system_error>
#include <vector>

#include "core/source_tree.h"

namespace fathom::model {

namespace fs = std::filesystem;

Result<fs::path> bundled_model_folder() {
  std::error_code error;
  const fs::path bin = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::vector<fs::path> folders;
  for (const std::string& from : {std::string("."), bin.string()})
    if (const auto root = find_source_tree(from)) folders.push_back(fs::path(*root) / "models/tiny");
  folders.push_back(bin.parent_path() / "share/fathom/models/tiny");
  for (const fs::path& folder : folders)
    if (fs::exists(folder / "config.json", error)) return folder;
  return Error{"the bundled model is not in " + folders.front().string()};
}

}  // namespace fathom::model
