// Server-sent events: how a reply is streamed (specs/serving.md section 2).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "serve/api_error.h"
#include "serve/http.h"

namespace fathom::serve {

inline constexpr std::string_view kDone = "data: [DONE]\n\n";  // the last event of a chat or completion

// On one line, and UTF-8 whatever the strings are: ill-formed sequences become U+FFFD.
std::string text_of(const nlohmann::ordered_json& json);
// {"error": {message, type, param, code}}
nlohmann::ordered_json error_json(const ApiError& error);

std::string data_event(const nlohmann::ordered_json& json);
std::string named_event(std::string_view name, const nlohmann::ordered_json& json);
std::vector<HttpHeader> event_stream_headers();

}  // namespace fathom::serve
