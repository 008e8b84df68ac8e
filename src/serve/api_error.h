// The error of a refused request: the "error" object of the response.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace fathom::serve {

struct ApiError {
  int status       = 400;                // HTTP status
  std::string type = "BadRequestError";  // vLLM's type for the status
  std::string message;                   // one sentence with the field, its value and the allowed values
  std::string param = "";                // the field, "messages[2].content"; "" for no single field
  // Of a prompt that is too long, in tokens. Agents shorten their conversation by it.
  struct Fit {
    int64_t prompt, context;
  };
  std::optional<Fit> fit = {};
};

// A value, or the error in its place.
template <class T>
using ApiResult = std::variant<T, ApiError>;

inline ApiError bad_request(std::string param, std::string message) {
  return {.message = std::move(message), .param = std::move(param)};
}

// {"error": {message, type, param, code}}, with llama.cpp's n_prompt_tokens and n_ctx where the error has a
// Fit.
nlohmann::ordered_json error_json(const ApiError& error);

}  // namespace fathom::serve
