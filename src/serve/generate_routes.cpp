// POST /v1/chat/completions, /v1/completions and /v1/responses: from a parsed request to a running
// generation.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "serve/api_call.h"
#include "serve/chat_reply.h"
#include "serve/completion_reply.h"
#include "serve/generation.h"
#include "serve/output_constraint.h"
#include "serve/responses_reply.h"

namespace fathom::serve {
namespace {

using model::TokenId;

ReplyHead head_of(const ApiCall& call, const GenerationOptions& options, std::string_view prefix) {
  const auto now        = std::chrono::system_clock::now().time_since_epoch();
  const std::string& id = options.request_id.empty() ? call.request_id : options.request_id;
  return {.id      = fmt::format("{}{}", prefix, id),
          .created = std::chrono::duration_cast<std::chrono::seconds>(now).count(),
          .model   = call.options.model_names.front()};
}

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

// As asked, or all that the context leaves.
ApiResult<int64_t> max_tokens_for(const ApiCall& call, const GenerationOptions& options,
                                  int64_t prompt_tokens) {
  const int64_t context = call.model->generator.max_context();
  const int64_t wanted  = options.max_tokens.value_or(std::max(int64_t{1}, options.min_tokens));
  if (prompt_tokens + wanted > context)
    return ApiError{
        .type    = "exceed_context_size_error",
        .message = fmt::format(
            "the prompt has {} tokens, which leaves no room for {} more in a context of {}: shorten "
            "the prompt or ask for fewer tokens",
            prompt_tokens, wanted, context),
        .param = options.max_tokens ? "max_tokens" : "",
        .fit   = ApiError::Fit{.prompt = prompt_tokens, .context = context}};
  return options.max_tokens.value_or(context - prompt_tokens);
}

std::vector<TokenId> with_stops(std::vector<TokenId> eos, const std::vector<TokenId>& stops) {
  eos.insert(eos.end(), stops.begin(), stops.end());
  return eos;
}

// One choice for each of n; `text` says how its tokens are read.
std::optional<ApiError> add_choices(const ApiCall& call, const GenerationOptions& options, uint64_t seed,
                                    const std::vector<TokenId>& prompt, AnswerText::Options text,
                                    const std::optional<ConstraintRequest>& constraint,
                                    std::vector<Generation::Choice>& choices) {
  const auto max_tokens = max_tokens_for(call, options, static_cast<int64_t>(prompt.size()));
  if (const auto* error = std::get_if<ApiError>(&max_tokens)) return *error;
  if (!options.ignore_eos) text.eos_ids = call.model->checkpoint.eos_ids;
  text.stop_token_ids = options.stop_token_ids;
  text.stop_strings   = options.stop;
  text.keep_stop      = options.include_stop_str_in_output;
  text.min_tokens     = options.min_tokens;
  std::unique_ptr<engine::Constraint> made;  // once: a schema may take long to compile
  if (constraint) {
    if (!call.model->constraint)
      return bad_request("response_format", "this server cannot constrain what the model writes");
    auto result = call.model->constraint(*constraint);
    if (!result) return bad_request("response_format", result.error().message);
    made = std::move(*result);
  }
  for (int64_t i = 0; i < options.n; ++i) {
    engine::Request request{.prompt     = prompt,
                            .sampling   = options.sampling,
                            .max_tokens = std::get<int64_t>(max_tokens),
                            .min_tokens = options.min_tokens,
                            .stop_ids   = with_stops(text.eos_ids, options.stop_token_ids),
                            .priority   = options.priority,
                            .cache_salt = options.cache_salt};
    request.sampling.seed = seed + static_cast<uint64_t>(i);
    if (made) request.constraint = made->clone();
    choices.push_back({.request = std::move(request), .text = text, .own_prompt = i == 0});
  }
  return std::nullopt;
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

// A call that must be made goes before the format of an answer: there will be none.
std::optional<ConstraintRequest> chat_constraint(const ChatRequest& chat) {
  const bool named = chat.tool_choice.kind == ToolChoice::Kind::named;
  if (!named && chat.tool_choice.kind != ToolChoice::Kind::required)
    return format_constraint(chat.options.format);
  ConstraintRequest constraint{.kind = ConstraintRequest::Kind::tool_call};
  for (const model::NamedSchema& tool : chat.tools)
    if (!named || tool.name == chat.tool_choice.name)
      constraint.tools.push_back({.name = tool.name, .parameters = tool.schema});
  return constraint;
}

void generate(const ApiCall& call, const GenerationOptions& options, std::unique_ptr<Reply> reply,
              std::vector<Generation::Choice> choices) {
  const auto refusal =
      Generation::start(call.model->generator, *call.model->checkpoint.tokenizer, call.exchange,
                        std::move(reply), {.stream = options.stream, .ping_interval = options.ping_interval},
                        std::move(choices), call.model->metrics);
  if (refusal) call.refuse(refusal_error(*refusal));
}

// Chat and responses: the same conversation, told differently.
std::optional<ApiError> chat_choices(const ApiCall& call, const ChatRequest& chat,
                                     std::vector<Generation::Choice>& choices) {
  if (auto error = call.check_model(chat.model)) return error;
  const auto prompt = call.prompt_of(chat);
  if (const auto* error = std::get_if<ApiError>(&prompt)) return *error;
  const AnswerText::Options text{.harmony    = call.model->checkpoint.harmony,
                                 .tool_calls = chat.tool_choice.kind != ToolChoice::Kind::none};
  return add_choices(call, chat.options, chat.options.seed.value_or(random_seed()), std::get<0>(prompt), text,
                     chat_constraint(chat), choices);
}

}  // namespace

void chat_completions(const ApiCall& call) {
  auto parsed = parse_chat_request(call.request.body, call.served());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return call.refuse(*error);
  const auto& chat = std::get<ChatRequest>(parsed);
  std::vector<Generation::Choice> choices;
  if (const auto error = chat_choices(call, chat, choices)) return call.refuse(*error);
  const ChatReplyOptions reply{.head                   = head_of(call, chat.options, "chatcmpl-"),
                               .choices                = choices.size(),
                               .include_reasoning      = chat.include_reasoning,
                               .logprobs               = chat.options.sampling.logprobs.has_value(),
                               .include_usage          = chat.options.include_usage,
                               .continuous_usage_stats = chat.options.continuous_usage_stats};
  const model::Tokenizer& tokenizer = *call.model->checkpoint.tokenizer;
  generate(call, chat.options,
           chat.options.stream ? chat_stream(tokenizer, reply) : chat_body(tokenizer, reply),
           std::move(choices));
}

void responses(const ApiCall& call) {
  auto parsed = parse_responses_request(call.request.body, call.served());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return call.refuse(*error);
  const auto& request = std::get<ResponsesRequest>(parsed);
  std::vector<Generation::Choice> choices;
  if (const auto error = chat_choices(call, request.chat, choices)) return call.refuse(*error);
  const GenerationOptions& options  = request.chat.options;
  const ReplyHead head              = head_of(call, options, "resp_");
  const model::Tokenizer& tokenizer = *call.model->checkpoint.tokenizer;
  generate(
      call, options,
      options.stream ? responses_stream(tokenizer, head, request) : responses_body(tokenizer, head, request),
      std::move(choices));
}

void completions(const ApiCall& call) {
  auto parsed = parse_completion_request(call.request.body, call.served());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return call.refuse(*error);
  const auto& request              = std::get<CompletionRequest>(parsed);
  const GenerationOptions& options = request.options;
  if (const auto error = call.check_model(request.model)) return call.refuse(*error);
  const model::Checkpoint& checkpoint = call.model->checkpoint;
  const auto constraint               = format_constraint(options.format);
  if (constraint && checkpoint.harmony)
    return call.refuse(bad_request("response_format",
                                   "this model keeps to a format in chat completions and responses only, not "
                                   "where it goes on with a text"));
  const uint64_t seed = options.seed.value_or(random_seed());
  CompletionReplyOptions reply{.head                   = head_of(call, options, "cmpl-"),
                               .logprobs               = options.sampling.logprobs.has_value(),
                               .include_usage          = options.include_usage,
                               .continuous_usage_stats = options.continuous_usage_stats};
  std::vector<Generation::Choice> choices;
  for (const CompletionPrompt& prompt : request.prompts) {
    std::vector<TokenId> ids;
    if (const auto* text = std::get_if<std::string>(&prompt)) {
      auto encoded = checkpoint.tokenizer->encode(*text);
      if (!encoded) return call.refuse(bad_request("prompt", encoded.error().message));
      ids = std::move(*encoded);
    } else {
      ids = std::get<std::vector<TokenId>>(prompt);
    }
    const AnswerText::Options text{.skip_special_tokens = options.skip_special_tokens};
    if (const auto error = add_choices(call, options, seed, ids, text, constraint, choices))
      return call.refuse(*error);
    reply.echo.resize(choices.size(), request.echo ? checkpoint.tokenizer->decode(ids) : "");
  }
  generate(call, options,
           options.stream ? completion_stream(*checkpoint.tokenizer, std::move(reply))
                          : completion_body(*checkpoint.tokenizer, std::move(reply)),
           std::move(choices));
}

}  // namespace fathom::serve
