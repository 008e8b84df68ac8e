// A strict parser for JSON files of others: refuses what lenient parsers accept, and names the place.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/result.h"

namespace fathom {

// Also refuses a key that occurs twice in one object (parsers differ in which one counts) and nesting deeper
// than
// 64. The error gives only the reason; the caller adds the file and the remedy.
Result<nlohmann::json> parse_strict_json(std::string_view text);

// A name from a file, quoted for a message: at most 96 bytes, no control characters.
std::string in_quotes(std::string_view name);

}  // namespace fathom
