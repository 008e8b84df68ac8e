#include "serve/start_generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "serve/random_id.h"

namespace fathom::serve {
namespace {

using model::TokenId;

ApiError refusal_error(const engine::Refusal& refusal) {
  using Reason = engine::Refusal::Reason;
  switch (refusal.reason) {
    case Reason::queue_full:
      return {.status = 429, .type = "RateLimitError", .message = refusal.message};
    case Reason::stopping:
      return {.status = 503, .type = "unavailable_error", .message = refusal.message};
    case Reason::invalid:
    case Reason::too_long:
      break;
  }
  return bad_request("", refusal.message);
}

// The limit that the client set, or all tokens that the context has left.
ApiResult<int64_t> max_tokens_for(const RequestContext& context, const GenerationOptions& options,
                                  int64_t prompt_tokens) {
  const int64_t max_context = context.model->generator.max_context();
  const int64_t wanted      = options.max_tokens.value_or(std::max(int64_t{1}, options.min_tokens));
  if (prompt_tokens + wanted > max_context)
    return ApiError{
        .type    = "exceed_context_size_error",
        .message = fmt::format(
            "the prompt has {} tokens, which leaves no room for {} more in a context of {}: shorten "
            "the prompt or ask for fewer tokens",
            prompt_tokens, wanted, max_context),
        .param = options.max_tokens ? "max_tokens" : "",
        .fit   = ApiError::Fit{.prompt = prompt_tokens, .context = max_context}};
  return options.max_tokens.value_or(max_context - prompt_tokens);
}

std::vector<TokenId> with_stops(std::vector<TokenId> eos, const std::vector<TokenId>& stops) {
  eos.insert(eos.end(), stops.begin(), stops.end());
  return eos;
}

// The constraint of the format, if any, with the limit of the reasoning; that alone where there is no format.
std::optional<ConstraintRequest> with_thinking_budget(std::optional<ConstraintRequest> constraint,
                                                      const GenerationOptions& options, int64_t max_tokens) {
  const auto budget = options.thinking_token_budget;
  if (budget == -1) return constraint;
  if (!constraint && !budget) return std::nullopt;
  if (!constraint) constraint = ConstraintRequest{.kind = ConstraintRequest::Kind::text};
  constraint->max_reasoning_tokens = budget;
  constraint->max_tokens           = max_tokens;
  return constraint;
}

// A forced tool call takes the place of the response format: there is no other answer.
std::optional<ConstraintRequest> chat_constraint(const ChatCompletionRequest& chat) {
  const bool named = chat.tool_choice.kind == ToolChoice::Kind::named;
  if (!named && chat.tool_choice.kind != ToolChoice::Kind::required)
    return format_constraint(chat.options.format);
  ConstraintRequest constraint{.kind = ConstraintRequest::Kind::tool_call};
  for (const model::NamedSchema& tool : chat.tools)
    if (!named || tool.name == chat.tool_choice.name)
      constraint.tools.push_back({.name = tool.name, .parameters = tool.schema});
  return constraint;
}

}  // namespace

ResponseEnvelope envelope_of(const RequestContext& context, const GenerationOptions& options,
                             std::string_view prefix) {
  const auto now            = std::chrono::system_clock::now().time_since_epoch();
  const std::string& id     = options.request_id.empty() ? context.request_id : options.request_id;
  const std::string adapter = context.adapter(options.model);
  return {.id      = fmt::format("{}{}", prefix, id),
          .created = std::chrono::duration_cast<std::chrono::seconds>(now).count(),
          .model   = adapter.empty() ? context.options.model_names.front() : adapter};
}

std::optional<ConstraintRequest> format_constraint(const ResponseFormat& format) {
  switch (format.kind) {
    case ResponseFormat::Kind::text:
      return std::nullopt;
    case ResponseFormat::Kind::json_object:
      return ConstraintRequest{.kind = ConstraintRequest::Kind::json_object};
    case ResponseFormat::Kind::json_schema:
      break;
  }
  return ConstraintRequest{.kind = ConstraintRequest::Kind::json_schema, .schema = format.schema.schema};
}

std::optional<ApiError> add_choices(const RequestContext& context, const GenerationOptions& options,
                                    uint64_t seed, const std::vector<TokenId>& prompt,
                                    OutputParser::Options parser,
                                    const std::optional<ConstraintRequest>& constraint,
                                    std::vector<GenerationTask::Choice>& choices) {
  const auto max_tokens = max_tokens_for(context, options, static_cast<int64_t>(prompt.size()));
  if (const auto* error = std::get_if<ApiError>(&max_tokens)) return *error;
  if (!options.ignore_eos) parser.eos_ids = context.model->checkpoint.eos_ids;
  parser.stop_token_ids = options.stop_token_ids;
  parser.stop_strings   = options.stop;
  parser.keep_stop      = options.include_stop_str_in_output;
  parser.min_tokens     = options.min_tokens;
  std::unique_ptr<engine::Constraint> compiled;  // once, since a schema may take long
  if (const auto asked = with_thinking_budget(constraint, options, std::get<int64_t>(max_tokens))) {
    const char* param = constraint ? "response_format" : "thinking_token_budget";
    if (!context.model->constraint)
      return bad_request(param, "this server cannot constrain what the model writes");
    auto result = context.model->constraint(*asked);
    if (!result) return bad_request(param, result.error().message);
    compiled = std::move(*result);
  }
  for (int64_t i = 0; i < options.n; ++i) {
    engine::Request request{.prompt     = prompt,
                            .sampling   = options.sampling,
                            .max_tokens = std::get<int64_t>(max_tokens),
                            .min_tokens = options.min_tokens,
                            .stop_ids   = with_stops(parser.eos_ids, options.stop_token_ids),
                            .priority   = options.priority,
                            .cache_salt = options.cache_salt,
                            .adapter    = context.adapter(options.model)};
    request.sampling.seed = seed + static_cast<uint64_t>(i);
    if (compiled) request.constraint = compiled->clone();
    choices.push_back({.request = std::move(request), .parser = parser, .own_prompt = i == 0});
  }
  return std::nullopt;
}

std::optional<ApiError> add_chat_choices(const RequestContext& context, const ChatCompletionRequest& chat,
                                         std::vector<GenerationTask::Choice>& choices) {
  if (auto error = context.check_model(chat.options.model)) return error;
  const auto prompt = context.prompt_of(chat);
  if (const auto* error = std::get_if<ApiError>(&prompt)) return *error;
  const OutputParser::Options parser{.harmony    = context.model->checkpoint.harmony,
                                     .tool_calls = chat.tool_choice.kind != ToolChoice::Kind::none};
  return add_choices(context, chat.options, chat.options.seed.value_or(random_seed()), std::get<0>(prompt),
                     parser, chat_constraint(chat), choices);
}

void start_generation(const RequestContext& context, const GenerationOptions& options,
                      std::unique_ptr<ResponseWriter> writer, std::vector<GenerationTask::Choice> choices) {
  const auto refusal = GenerationTask::start(
      context.model->generator, *context.model->checkpoint.tokenizer, context.exchange, std::move(writer),
      {.stream = options.stream, .ping_interval = options.ping_interval}, std::move(choices),
      context.model->metrics);
  if (refusal) context.refuse(refusal_error(*refusal));
}

}  // namespace fathom::serve
