// The source tree around the current folder, where there is one: a bundle has none.
#pragma once

#include <optional>
#include <string>

namespace fathom::cli {

// The nearest folder, from `from` upwards, that holds experiments/chapters.toml.
std::optional<std::string> find_source_tree(const std::string& from = ".");

// results/ of the source tree, else of the current folder.
std::string default_results();

}  // namespace fathom::cli
