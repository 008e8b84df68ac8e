// The source tree around a folder, where there is one: an installed bundle has none.
#pragma once

#include <optional>
#include <string>

namespace fathom {

// The nearest folder, from `from` upwards, that holds experiments/chapters.toml.
std::optional<std::string> find_source_tree(const std::string& from = ".");

}  // namespace fathom
