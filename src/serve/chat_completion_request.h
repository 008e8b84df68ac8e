// The request of POST /v1/chat/completions: OpenAI's, with vLLM's and llama.cpp's additions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/harmony_tools.h"
#include "serve/api_error.h"
#include "serve/chat_message.h"
#include "serve/generation_options.h"
#include "serve/tools.h"

namespace fathom::serve {

struct ChatCompletionRequest {
  std::vector<ChatMessage> messages;
  std::vector<model::NamedSchema> tools;
  ToolChoice tool_choice;                   // Kind::none where there are no tools
  std::string reasoning_effort = "medium";  // low, medium or high
  bool include_reasoning       = true;
  bool parallel_tool_calls     = true;
  GenerationOptions options;
};

// Never throws for the contents of a body: an invalid body is an ApiError of status 400.
ApiResult<ChatCompletionRequest> parse_chat_completion_request(std::string_view body,
                                                               const ServedModel& served);

// The same from a body that is already parsed; errors stay with the body.
ChatCompletionRequest read_chat_completion(const Field& body, const ServedModel& served);
std::string read_reasoning_effort(const Field& effort);  // low, medium or high

}  // namespace fathom::serve
