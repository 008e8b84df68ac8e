// JSON from files that others wrote: what a lenient parser lets through is refused here, with the place
// named.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/result.h"

namespace fathom::model {

// Refuses, beside what is no JSON: a key given twice in one object (which of the two holds differs from
// reader to reader), and nesting deeper than 64. The error says only why; the caller knows which file, and
// the remedy.
Result<nlohmann::json> parse_strict_json(std::string_view text);

// A name out of a file, fit for a message: in quotes, at most 96 bytes of it, no control characters.
std::string in_quotes(std::string_view name);

}  // namespace fathom::model
