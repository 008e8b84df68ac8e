// POST /v1/completions.
#include <string>
#include <utility>
#include <vector>

#include "serve/completion_request.h"
#include "serve/completion_stream.h"
#include "serve/random_id.h"
#include "serve/routes.h"
#include "serve/start_generation.h"

namespace fathom::serve {

void completions(const RequestContext& context) {
  auto parsed = parse_completion_request(context.request.body, context.served());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return context.refuse(*error);
  const auto& request              = std::get<CompletionRequest>(parsed);
  const GenerationOptions& options = request.options;
  if (const auto error = context.check_model(options.model)) return context.refuse(*error);
  const model::Checkpoint& checkpoint = context.model->checkpoint;
  const auto constraint               = format_constraint(options.format);
  if (constraint && checkpoint.harmony)
    return context.refuse(
        bad_request("response_format",
                    "this model keeps to a format in chat completions and responses only, not "
                    "where it goes on with a text"));
  if (options.thinking_token_budget.value_or(-1) >= 0 && checkpoint.harmony)
    return context.refuse(
        bad_request("thinking_token_budget",
                    "reasoning is limited in chat completions and responses only: a text that the "
                    "model goes on with has none"));
  const uint64_t seed = options.seed.value_or(random_seed());
  CompletionOptions writer_options{.envelope               = envelope_of(context, options, "cmpl-"),
                                   .logprobs               = options.sampling.logprobs.has_value(),
                                   .include_usage          = options.include_usage,
                                   .continuous_usage_stats = options.continuous_usage_stats};
  std::vector<GenerationTask::Choice> choices;
  for (const CompletionPrompt& prompt : request.prompts) {
    std::vector<model::TokenId> ids;
    if (const auto* text = std::get_if<std::string>(&prompt)) {
      auto encoded = checkpoint.tokenizer->encode(*text);
      if (!encoded) return context.refuse(bad_request("prompt", encoded.error().message));
      ids = std::move(*encoded);
    } else {
      ids = std::get<std::vector<model::TokenId>>(prompt);
    }
    const OutputParser::Options parser{.skip_special_tokens = options.skip_special_tokens};
    if (const auto error = add_choices(context, options, seed, ids, parser, constraint, choices))
      return context.refuse(*error);
    writer_options.echo.resize(choices.size(), request.echo ? checkpoint.tokenizer->decode(ids) : "");
  }
  start_generation(context, options,
                   options.stream ? completion_stream(*checkpoint.tokenizer, std::move(writer_options))
                                  : completion_body(*checkpoint.tokenizer, std::move(writer_options)),
                   std::move(choices));
}

}  // namespace fathom::serve
