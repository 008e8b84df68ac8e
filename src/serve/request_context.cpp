#include "serve/request_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "http/sse.h"
#include "serve/chat_prompt.h"

namespace fathom::serve {

using Json = nlohmann::ordered_json;

constexpr const char* kRetryAfterSeconds = "1";

void RequestContext::respond(const Json& body, int status) const {
  exchange->respond(status, {{"Content-Type", "application/json"}}, http::text_of(body));
}

void RequestContext::refuse(const ApiError& error) const {
  std::vector<http::Header> headers = {{"Content-Type", "application/json"}};
  if (error.status == 429 || error.status == 503) headers.push_back({"Retry-After", kRetryAfterSeconds});
  if (error.status == 401) headers.push_back({"WWW-Authenticate", "Bearer"});
  exchange->respond(error.status, std::move(headers), http::text_of(error_json(error)));
}

std::optional<ApiError> RequestContext::check_model(const std::string& name) const {
  const auto& names = options.model_names;
  if (name.empty() || !adapter(name).empty() || std::ranges::find(names, name) != names.end())
    return std::nullopt;
  return ApiError{
      .status  = 404,
      .type    = "NotFoundError",
      .message = fmt::format("the model '{}' is not served here, but '{}' is", name, names.front()),
      .param   = "model"};
}

std::string RequestContext::adapter(const std::string& name) const {
  const bool is_one =
      std::ranges::any_of(options.lora_modules, [&](const auto& module) { return module.name == name; });
  return is_one ? name : "";
}

ServedModel RequestContext::served() const {
  return {.vocab_size  = model->checkpoint.config.vocab_size,
          .max_context = model->generator.max_context(),
          .defaults    = model->defaults};
}

ApiResult<std::vector<model::TokenId>> RequestContext::prompt_of(const ChatCompletionRequest& chat) const {
  const model::Checkpoint& checkpoint = model->checkpoint;
  const auto messages                 = chat_prompt(chat, {.harmony       = checkpoint.harmony.has_value(),
                                                           .system_prompt = checkpoint.system_prompt,
                                                           .current_date  = model->current_date});
  if (const auto* error = std::get_if<ApiError>(&messages)) return *error;
  auto ids = render_harmony(*checkpoint.tokenizer, checkpoint.harmony.value(), std::get<0>(messages));
  if (!ids) return bad_request("messages", ids.error().message);
  return std::move(*ids);
}

}  // namespace fathom::serve
