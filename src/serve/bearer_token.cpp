#include "serve/bearer_token.h"

#include <algorithm>

namespace fathom::serve {
namespace {

bool equal_in_constant_time(std::string_view given, std::string_view secret) {
  unsigned char difference = given.size() == secret.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<unsigned char>(given[i] ^ secret[i % secret.size()]);
  return difference == 0;
}

}  // namespace

bool has_bearer_token(const http::Request& request, std::string_view key) {
  constexpr std::string_view kScheme = "bearer ";
  std::string_view given             = request.header("Authorization");
  const bool bearer =
      given.size() > kScheme.size() && std::equal(kScheme.begin(), kScheme.end(), given.begin(),
                                                  [](char a, char b) { return a == (b | 0x20); });
  if (!bearer) return false;
  given.remove_prefix(kScheme.size());
  return equal_in_constant_time(given.substr(std::min(given.find_first_not_of(' '), given.size())), key);
}

}  // namespace fathom::serve
