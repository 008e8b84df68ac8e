#include "grammar/json_string.h"

#include <fmt/format.h>

namespace fathom::grammar {

std::string canonical_json_escape(uint8_t byte) {
  switch (byte) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return byte < 0x20 ? fmt::format("\\u{:04x}", byte) : "";
  }
}

std::string canonical_json_string(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    const std::string escape = canonical_json_escape(static_cast<uint8_t>(c));
    json += escape.empty() ? std::string(1, c) : escape;
  }
  return json + '"';
}

}  // namespace fathom::grammar
