#include "serve/http_error.h"

#include <nlohmann/json.hpp>

namespace fathom::serve {
namespace {

std::string_view error_type(int status) {
  switch (status) {
    case 408:
      return "RequestTimeoutError";
    case 413:
    case 431:
      return "RequestTooLargeError";
    case 500:
      return "InternalServerError";
    case 501:
      return "NotImplementedError";
    case 503:
      return "ServiceUnavailableError";
    default:
      return "BadRequestError";
  }
}

}  // namespace

std::string http_error_body(int status, std::string_view message) {
  const nlohmann::ordered_json body = {
      {"error", {{"message", message}, {"type", error_type(status)}, {"param", nullptr}, {"code", status}}}};
  return body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace fathom::serve
