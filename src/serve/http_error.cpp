#include "serve/http_error.h"

#include <nlohmann/json.hpp>

#include "serve/sse.h"

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
  return text_of(error_json(
      {.status = status, .type = std::string(error_type(status)), .message = std::string(message)}));
}

}  // namespace fathom::serve
