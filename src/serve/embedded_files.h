// Files embedded in the program by embed.cmake at build time.
#pragma once

#include <string_view>

namespace fathom::serve {

// The page at "/": a chat and gauges in one file (src/serve/page/). Its Content-Security-Policy <meta> allows
// only its own script and style, by hash. The response must add a header that forbids framing.
std::string_view page_html();

// The API's description: openapi.json, OpenAPI 3.1.
std::string_view openapi_json();

}  // namespace fathom::serve
