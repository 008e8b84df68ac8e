// One HTTP request on its way through a route: what was asked, where to answer, what is served.
#pragma once

#include <chrono>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "http/http.h"
#include "serve/api.h"
#include "serve/api_error.h"
#include "serve/chat_completion_request.h"
#include "serve/generation_options.h"

namespace fathom::serve {

struct RequestContext {
  http::Request request;
  std::shared_ptr<http::Exchange> exchange;
  const ApiOptions& options;
  const ApiModel* model;  // null while it is loading; only routes that need no model run then
  std::chrono::system_clock::time_point server_started;
  std::string request_id;

  void respond(const nlohmann::ordered_json& body, int status = 200) const;
  void refuse(const ApiError& error) const;

  // An error of status 404 where `name`, the model that the request names, is not served here. "" is no name.
  std::optional<ApiError> check_model(const std::string& name) const;
  // `name` where it is an adapter's, else "".
  std::string adapter(const std::string& name) const;
  ServedModel served() const;
  // The prompt's tokens for a conversation.
  ApiResult<std::vector<model::TokenId>> prompt_of(const ChatCompletionRequest& chat) const;
};

}  // namespace fathom::serve
