#include "serve/sse.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace fathom::serve {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json error_json(const ApiError& error) {
  Json json = {{"message", error.message},
               {"type", error.type},
               {"param", error.param.empty() ? Json(nullptr) : Json(error.param)},
               {"code", error.status}};
  if (error.fit) {
    json["n_prompt_tokens"] = error.fit->prompt;
    json["n_ctx"]           = error.fit->context;
  }
  return {{"error", std::move(json)}};
}

std::string data_event(const Json& json) { return fmt::format("data: {}\n\n", text_of(json)); }

std::string named_event(std::string_view name, const Json& json) {
  return fmt::format("event: {}\ndata: {}\n\n", name, text_of(json));
}

std::vector<HttpHeader> event_stream_headers() {
  // The last one keeps nginx from collecting the events of a stream.
  return {{"Content-Type", "text/event-stream; charset=utf-8"},
          {"Cache-Control", "no-cache"},
          {"X-Accel-Buffering", "no"}};
}

std::optional<Ping> event_stream_ping(std::chrono::milliseconds interval) {
  if (interval == interval.zero()) return std::nullopt;
  return Ping{.piece = ": ping\n\n", .after = interval};
}

}  // namespace fathom::serve
