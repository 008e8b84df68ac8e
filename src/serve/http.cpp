#include "serve/http.h"

#include <algorithm>

namespace fathom::serve {
namespace {

// Whatever the locale: names of headers are ASCII.
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
  for (const HttpHeader& header : headers)
    if (same_name(header.name, name)) return header.value;
  return {};
}

}  // namespace fathom::serve
