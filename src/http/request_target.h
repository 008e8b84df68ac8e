// The target of a request line, as in RFC 9112 section 3.2.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

namespace fathom::http {

struct RequestTarget {
  std::string path;   // percent-decoded, well-formed UTF-8 without NUL; starts with '/' or is "*"
  std::string query;  // after the first '?', not decoded
};

// Parses "/path?query", "http://host/path?query" and "*". An error says what is wrong with the target,
// without quoting it.
Result<RequestTarget> parse_request_target(std::string_view target);

}  // namespace fathom::http
