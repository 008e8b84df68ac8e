// POST /v1/responses.
#include <utility>
#include <vector>

#include "serve/responses.h"
#include "serve/responses_stream.h"
#include "serve/routes.h"
#include "serve/start_generation.h"

namespace fathom::serve {

void responses(const RequestContext& context) {
  auto parsed = parse_responses_request(context.request.body, context.served());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return context.refuse(*error);
  const auto& request = std::get<ResponsesRequest>(parsed);
  std::vector<GenerationTask::Choice> choices;
  if (const auto error = add_chat_choices(context, request.chat, choices)) return context.refuse(*error);
  const GenerationOptions& options  = request.chat.options;
  const ResponseEnvelope envelope   = envelope_of(context, options, "resp_");
  const model::Tokenizer& tokenizer = *context.model->checkpoint.tokenizer;
  start_generation(context, options,
                   options.stream ? responses_stream(tokenizer, envelope, request)
                                  : responses_body(tokenizer, envelope, request),
                   std::move(choices));
}

}  // namespace fathom::serve
