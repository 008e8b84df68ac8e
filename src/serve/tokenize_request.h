// The requests of POST /tokenize and /detokenize, in vLLM's and in llama.cpp's spelling.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/tokenizer.h"
#include "serve/api_error.h"
#include "serve/chat_completion_request.h"

namespace fathom::serve {

struct TokenizeRequest {
  std::string model;                                       // "" where the client named none
  std::variant<std::string, ChatCompletionRequest> input;  // a text, or a conversation to render
  // "<|end|>" in a text is one token. In the messages of a conversation it is always plain text.
  bool recognise_special = true;
  bool with_strings      = false;  // vLLM's: the tokens' texts in a list of their own
  bool with_pieces       = false;  // llama.cpp's: each token's text beside its id
};

struct DetokenizeRequest {
  std::string model;
  std::vector<model::TokenId> tokens;
};

// Never throw for the contents of a body: an invalid body is an ApiError of status 400.
ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body, const ServedModel& served);
ApiResult<DetokenizeRequest> parse_detokenize_request(std::string_view body, const ServedModel& served);

}  // namespace fathom::serve
