// Writes server-sent events (WHATWG HTML, "Server-sent events"), as OpenAI's API streams its responses.
#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/http.h"

namespace fathom::http {

inline constexpr std::string_view kDone =
    "data: [DONE]\n\n";  // ends a stream of chat completions or completions

// One line of UTF-8, whatever the strings are: ill-formed sequences become U+FFFD.
std::string text_of(const nlohmann::ordered_json& json);
std::string data_event(const nlohmann::ordered_json& json);
std::string named_event(std::string_view name, const nlohmann::ordered_json& json);
std::vector<Header> event_stream_headers();
// A comment, which readers ignore. None where `interval` is zero.
std::optional<Ping> event_stream_ping(std::chrono::milliseconds interval);

}  // namespace fathom::http
