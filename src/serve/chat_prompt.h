// A conversation as OpenAI's clients write it, in harmony's messages (specs/gpt-oss.md section 10).
#pragma once

#include <string>
#include <vector>

#include "model/harmony.h"
#include "serve/api_error.h"
#include "serve/api_request.h"

namespace fathom::serve {

// How a checkpoint was trained to converse.
struct ChatStyle {
  bool harmony = false;       // its tokenizer has the format's tokens
  std::string system_prompt;  // the checkpoint's own system message; "" where it has gpt-oss's
  std::string current_date;   // "2025-06-28" for gpt-oss's system message; "" for none
};

// What render_harmony() makes a prompt of. Instructions, tools and response format are one developer message
// in front, if there are any; a checkpoint with its own system message gets that unchanged, and no response
// format, which it has never seen. An error, of status 400, where the model knows no chat format.
ApiResult<std::vector<model::HarmonyMessage>> chat_prompt(const ChatRequest& request, const ChatStyle& style);

}  // namespace fathom::serve
