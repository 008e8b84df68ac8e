#include "cli/variant_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

namespace fathom::cli {

Result<std::string> variant_source(const std::string& root, const lab::ExperimentInfo& experiment,
                                   const std::string& variant) {
  namespace fs          = std::filesystem;
  const fs::path folder = fs::path(root) / experiment.folder;
  for (const lab::VariantInfo& info : experiment.variants)
    if (info.id == variant && !info.op.empty())
      return (fs::path(root) / "src" / info.op).lexically_normal().string();
  for (std::string stem = variant; !stem.empty();
       stem             = stem.substr(0, stem.find('_') == std::string::npos ? 0 : stem.rfind('_')))
    for (const char* extension : {".cpp", ".cu"})
      if (const fs::path file = folder / (stem + extension); fs::exists(file))
        return file.lexically_normal().string();
  std::vector<std::string> there;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    there.push_back(entry.path().filename().string());
  std::sort(there.begin(), there.end());
  return Error{fmt::format("no file of its own for variant '{}' in {}; there are {}", variant,
                           folder.string(),
                           there.empty() ? "none" : fmt::format("{}", fmt::join(there, ", ")))};
}

}  // namespace fathom::cli
