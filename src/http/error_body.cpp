#include "http/error_body.h"

#include <nlohmann/json.hpp>

#include "http/sse.h"

namespace fathom::http {
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

std::string error_body(int status, std::string_view message) {
  return text_of(
      {{"error",
        {{"message", message}, {"type", error_type(status)}, {"param", nullptr}, {"code", status}}}});
}

}  // namespace fathom::http
