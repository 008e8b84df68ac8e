// The request of POST /v1/completions: OpenAI's, with vLLM's and llama.cpp's additions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/tokenizer.h"
#include "serve/api_error.h"
#include "serve/generation_options.h"

namespace fathom::serve {

inline constexpr int64_t kDefaultMaxTokens = 16;  // OpenAI's default max_tokens of a completion

// Text or token ids, not empty.
using CompletionPrompt = std::variant<std::string, std::vector<model::TokenId>>;

struct CompletionRequest {
  std::vector<CompletionPrompt> prompts;  // at least one
  bool echo = false;                      // the answer's text starts with the prompt
  GenerationOptions options;              // max_tokens is set unless n_predict is -1
};

// Never throws for the contents of a body: an invalid body is an ApiError of status 400.
ApiResult<CompletionRequest> parse_completion_request(std::string_view body, const ServedModel& served);

}  // namespace fathom::serve
