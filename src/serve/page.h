// Files that are part of the program, made by embed.cmake when it is built.
#pragma once

#include <string_view>

namespace fathom::serve {

// The page at "/": a chat and gauges, whole in itself (src/serve/page/). It says in a <meta> by which hashes
// its script and its style may run, and that nothing else may; a header should add that nobody frames it.
std::string_view page_html();

// What the API takes and gives: openapi.json, OpenAPI 3.1.
std::string_view openapi_json();

}  // namespace fathom::serve
