#include "cli/model_folder.h"

#include "cli/usage_error.h"
#include "model/bundled_model.h"

namespace fathom::cli {

std::filesystem::path model_folder(const std::string& named) {
  if (!named.empty()) return named;
  const auto bundled = model::bundled_model_folder();
  if (!bundled)
    throw UsageError("no model: give --model FOLDER or set FATHOM_MODEL; " + bundled.error().message);
  return *bundled;
}

}  // namespace fathom::cli
