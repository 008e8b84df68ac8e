#include "serve/tokenize_request.h"

#include <limits>
#include <utility>

namespace fathom::serve {

// vLLM's "prompt" or "messages", llama.cpp's "content".
ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body, const ServedModel& served) {
  return read_body(body, [&](const Field& root) {
    TokenizeRequest request{.model = root["model"].text().value_or("")};
    const Field text = root["prompt"] ? root["prompt"] : root["content"];
    if (!text && !root["messages"]) text.fail("is missing: give `prompt`, `content` or `messages`");
    if (text)
      request.input = text.text().value_or("");
    else
      request.input = read_chat_completion(root, served);
    request.recognise_special = root["parse_special"].boolean().value_or(true);
    request.with_strings      = root["return_token_strs"].boolean().value_or(false);
    request.with_pieces       = root["with_pieces"].boolean().value_or(false);
    return request;
  });
}

ApiResult<DetokenizeRequest> parse_detokenize_request(std::string_view body, const ServedModel& served) {
  return read_body(body, [&](const Field& root) {
    if (!root["tokens"]) root["tokens"].fail("is missing");
    return DetokenizeRequest{
        .model  = root["model"].text().value_or(""),
        .tokens = root["tokens"].token_ids(std::numeric_limits<int64_t>::max(), served.vocab_size)};
  });
}

}  // namespace fathom::serve
