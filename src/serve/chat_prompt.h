// Turns an OpenAI conversation into messages of the harmony format (https://github.com/openai/harmony).
#pragma once

#include <string>
#include <vector>

#include "model/harmony.h"
#include "serve/api_error.h"
#include "serve/chat_completion_request.h"

namespace fathom::serve {

// The chat format that a checkpoint was trained on.
struct ChatStyle {
  bool harmony = false;       // the tokenizer has harmony's control tokens
  std::string system_prompt;  // the checkpoint's own system message; "" for gpt-oss's
  std::string current_date;   // "2025-06-28" for gpt-oss's system message; "" for none
};

// The input of render_harmony(). Instructions, tools and response format are one developer message at the
// front, if there are any. A checkpoint with its own system message gets that message unchanged, and no
// response format, because it was not trained on any. An error of status 400 where the model has no chat
// format.
ApiResult<std::vector<model::HarmonyMessage>> chat_prompt(const ChatCompletionRequest& request,
                                                          const ChatStyle& style);

}  // namespace fathom::serve
