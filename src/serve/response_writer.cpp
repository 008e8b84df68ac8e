#include "serve/response_writer.h"

#include <nlohmann/json.hpp>

#include "http/sse.h"

namespace fathom::serve {

using Json = nlohmann::ordered_json;

Json envelope_json(const ResponseEnvelope& envelope, std::string_view object) {
  return {{"id", envelope.id}, {"object", object}, {"created", envelope.created}, {"model", envelope.model}};
}

Json stop_reason_json(const StopReason& stop) {
  if (const auto* id = std::get_if<model::TokenId>(&stop)) return *id;
  if (const auto* text = std::get_if<std::string>(&stop)) return *text;
  return nullptr;
}

std::string last_events(const ResponseEnvelope& envelope, std::string_view object, bool include_usage,
                        const Usage& usage) {
  std::string events;
  if (include_usage) {
    Json last       = envelope_json(envelope, object);
    last["choices"] = Json::array();
    last["usage"]   = usage_json(usage);
    last["timings"] = timings_json(usage);
    set_weight_version(last, usage);
    events = http::data_event(last);
  }
  return events.append(http::kDone);
}

std::string error_events(const ApiError& error) {
  return http::data_event(error_json(error)).append(http::kDone);
}

}  // namespace fathom::serve
