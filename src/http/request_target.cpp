#include "http/request_target.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "core/utf8.h"

namespace fathom::http {
namespace {

// None where two hexadecimal digits do not follow a '%'.
std::optional<std::string> percent_decoded(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  while (!text.empty()) {
    if (text[0] != '%') {
      decoded += text[0];
      text.remove_prefix(1);
      continue;
    }
    const std::string_view digits = text.substr(1, 2);
    unsigned char byte            = 0;
    const auto parsed             = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (digits.size() != 2 || parsed.ptr != digits.data() + 2) return std::nullopt;
    decoded += static_cast<char>(byte);
    text.remove_prefix(3);
  }
  return decoded;
}

// "/path?query" of "http://host/path?query".
std::string_view without_authority(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (target.starts_with(scheme)) {
      target.remove_prefix(scheme.size());
      const std::string_view path = target.substr(std::min(target.find_first_of("/?"), target.size()));
      return path.empty() ? "/" : path;
    }
  return target;
}

}  // namespace

Result<RequestTarget> parse_request_target(std::string_view target) {
  target             = without_authority(target);
  const size_t query = std::min(target.find('?'), target.size());
  auto path          = percent_decoded(target.substr(0, query));
  if (!path) return Error{"in the path, a % is not followed by two hexadecimal digits: send it as %25"};
  if (*path != "*" && !path->starts_with('/'))
    return Error{"the request's target must start with / or http://"};
  if (path->find('\0') != std::string::npos) return Error{"the path must not contain NUL (%00)"};
  if (!is_well_formed(*path)) return Error{"the path, percent-decoded, is not UTF-8"};
  return RequestTarget{std::move(*path), std::string(target.substr(std::min(query + 1, target.size())))};
}

}  // namespace fathom::http
