#include "http/sse.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace fathom::http {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string data_event(const Json& json) { return fmt::format("data: {}\n\n", text_of(json)); }

std::string named_event(std::string_view name, const Json& json) {
  return fmt::format("event: {}\ndata: {}\n\n", name, text_of(json));
}

std::vector<Header> event_stream_headers() {
  // X-Accel-Buffering keeps nginx from collecting the events of a stream.
  return {{"Content-Type", "text/event-stream; charset=utf-8"},
          {"Cache-Control", "no-cache"},
          {"X-Accel-Buffering", "no"}};
}

std::optional<Ping> event_stream_ping(std::chrono::milliseconds interval) {
  if (interval == interval.zero()) return std::nullopt;
  return Ping{.piece = ": ping\n\n", .after = interval};
}

}  // namespace fathom::http
