// From a parsed request to a running GenerationTask: prompt, limits, constraint and the choices to submit.
// The routes of chat completions, completions and responses share it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "serve/generation_task.h"
#include "serve/request_context.h"
#include "serve/response_writer.h"
#include "serve/structured_output.h"

namespace fathom::serve {

// The id is `prefix` and the client's request id, or a random one.
ResponseEnvelope envelope_of(const RequestContext& context, const GenerationOptions& options,
                             std::string_view prefix);

// The constraint that a response format asks for; none for text.
std::optional<ConstraintRequest> format_constraint(const ResponseFormat& format);

// Appends options.n choices for `prompt`; choice i samples with seed + i. `parser` needs only the fields that
// the options do not set.
std::optional<ApiError> add_choices(const RequestContext& context, const GenerationOptions& options,
                                    uint64_t seed, const std::vector<model::TokenId>& prompt,
                                    OutputParser::Options parser,
                                    const std::optional<ConstraintRequest>& constraint,
                                    std::vector<GenerationTask::Choice>& choices);
// The same for a conversation, of chat completions or responses.
std::optional<ApiError> add_chat_choices(const RequestContext& context, const ChatCompletionRequest& chat,
                                         std::vector<GenerationTask::Choice>& choices);

// Submits the choices to the engine, or refuses the request.
void start_generation(const RequestContext& context, const GenerationOptions& options,
                      std::unique_ptr<ResponseWriter> writer, std::vector<GenerationTask::Choice> choices);

}  // namespace fathom::serve
