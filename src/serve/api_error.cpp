#include "serve/api_error.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace fathom::serve {

using Json = nlohmann::ordered_json;

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

}  // namespace fathom::serve
