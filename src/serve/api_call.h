// One request on its way through a route of the API (api.h).
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/api.h"
#include "serve/api_error.h"
#include "serve/http.h"
#include "serve/reply.h"

namespace fathom::serve {

struct ApiCall {
  HttpRequest request;
  std::shared_ptr<HttpExchange> exchange;
  const ApiOptions& options;
  const ApiModel* model;  // null while it is being loaded, which only routes that need none see
  std::chrono::system_clock::time_point server_started;
  std::string request_id;

  void respond(const nlohmann::ordered_json& body, int status = 200) const;
  void refuse(const ApiError& error) const;

  // Parsed requests name a model, or none. An error of status 404 when it is not served here.
  std::optional<ApiError> check_model(const std::string& name) const;
  ServedModel served() const;
  ApiResult<std::vector<model::TokenId>> prompt_of(const ChatRequest& chat) const;
};

// Routes of the files beside this one.
void chat_completions(const ApiCall& call);
void completions(const ApiCall& call);
void responses(const ApiCall& call);
void tokenize(const ApiCall& call);
void detokenize(const ApiCall& call);

}  // namespace fathom::serve
