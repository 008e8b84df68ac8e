// The request of POST /v1/responses, without stored state: `input` holds all that the answer depends on.
#pragma once

#include <string>
#include <string_view>

#include "serve/api_error.h"
#include "serve/chat_completion_request.h"

namespace fathom::serve {

struct ResponsesRequest {
  ChatCompletionRequest chat;   // `instructions` are its first message, of role developer
  std::string instructions;     // repeated in the response
  std::string metadata = "{}";  // a JSON object, repeated in the response
};

// Never throws for the contents of a body: an invalid body is an ApiError of status 400.
ApiResult<ResponsesRequest> parse_responses_request(std::string_view body, const ServedModel& served);

}  // namespace fathom::serve
