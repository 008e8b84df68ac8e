// What a request asks for: the target of its first line, as RFC 9112 section 3.2 has it.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

namespace fathom::serve {

struct HttpTarget {
  std::string path;   // percent-decoded: well-formed UTF-8 without NUL, that starts with '/' or is "*"
  std::string query;  // what follows the first '?', as it came
};

// Of "/path?query", "http://host/path?query" and "*". An error says what is wrong with the target, without
// quoting it.
Result<HttpTarget> parse_http_target(std::string_view target);

}  // namespace fathom::serve
