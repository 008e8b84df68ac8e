// Why the API said no to a request: what a client reads in the reply's "error".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace fathom::serve {

struct ApiError {
  int status       = 400;                // of HTTP
  std::string type = "BadRequestError";  // vLLM's word for the status
  std::string message;                   // one sentence that names the field, its value and what it may be
  std::string param = "";                // the field's place, "messages[2].content"; "" for no single field
  // Of a prompt that does not fit, in tokens: agents cut their conversation by it.
  struct Fit {
    int64_t prompt, context;
  };
  std::optional<Fit> fit = {};
};

// A value, or the reason there is none.
template <class T>
using ApiResult = std::variant<T, ApiError>;

inline ApiError bad_request(std::string param, std::string message) {
  return {.message = std::move(message), .param = std::move(param)};
}

}  // namespace fathom::serve
