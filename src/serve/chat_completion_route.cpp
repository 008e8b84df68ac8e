// POST /v1/chat/completions.
#include <utility>
#include <vector>

#include "serve/chat_completion_stream.h"
#include "serve/routes.h"
#include "serve/start_generation.h"

namespace fathom::serve {

void chat_completions(const RequestContext& context) {
  auto parsed = parse_chat_completion_request(context.request.body, context.served());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return context.refuse(*error);
  const auto& chat = std::get<ChatCompletionRequest>(parsed);
  std::vector<GenerationTask::Choice> choices;
  if (const auto error = add_chat_choices(context, chat, choices)) return context.refuse(*error);
  const ChatCompletionOptions writer_options{.envelope = envelope_of(context, chat.options, "chatcmpl-"),
                                             .choices  = choices.size(),
                                             .include_reasoning = chat.include_reasoning,
                                             .logprobs          = chat.options.sampling.logprobs.has_value(),
                                             .include_usage     = chat.options.include_usage,
                                             .continuous_usage_stats = chat.options.continuous_usage_stats};
  const model::Tokenizer& tokenizer = *context.model->checkpoint.tokenizer;
  start_generation(context, chat.options,
                   chat.options.stream ? chat_completion_stream(tokenizer, writer_options)
                                       : chat_completion_body(tokenizer, writer_options),
                   std::move(choices));
}

}  // namespace fathom::serve
