#include "http/http.h"

#include <algorithm>

namespace fathom::http {
namespace {

// Independent of the locale: header names are ASCII.
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace

std::string_view Request::header(std::string_view name) const {
  for (const Header& header : headers)
    if (same_name(header.name, name)) return header.value;
  return {};
}

}  // namespace fathom::http
