// Server-sent events: how a reply is streamed (specs/serving.md section 2).
#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/api_error.h"
#include "serve/http.h"

namespace fathom::serve {

inline constexpr std::string_view kDone = "data: [DONE]\n\n";  // the last event of a chat or completion

// On one line, and UTF-8 whatever the strings are: ill-formed sequences become U+FFFD.
std::string text_of(const nlohmann::ordered_json& json);
// {"error": {message, type, param, code}}, with llama.cpp's n_prompt_tokens and n_ctx where it is about them
nlohmann::ordered_json error_json(const ApiError& error);

std::string data_event(const nlohmann::ordered_json& json);
std::string named_event(std::string_view name, const nlohmann::ordered_json& json);
std::vector<HttpHeader> event_stream_headers();
// A comment, which readers of events pass over. An `interval` of zero: none.
std::optional<Ping> event_stream_ping(std::chrono::milliseconds interval);

}  // namespace fathom::serve
