// POST /tokenize and /detokenize: the response has both vLLM's and llama.cpp's fields.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/utf8.h"
#include "serve/routes.h"
#include "serve/tokenize_request.h"

namespace fathom::serve {
namespace {

using Json = nlohmann::ordered_json;
using model::TokenId;

ApiResult<std::vector<TokenId>> tokens_of(const RequestContext& context, const TokenizeRequest& request) {
  if (const auto* chat = std::get_if<ChatCompletionRequest>(&request.input)) return context.prompt_of(*chat);
  auto ids = context.model->checkpoint.tokenizer->encode(
      std::get<std::string>(request.input),
      request.recognise_special ? model::AddedTokens::recognised : model::AddedTokens::as_text);
  if (!ids) return bad_request("prompt", ids.error().message);
  return std::move(*ids);
}

// The token's text; its bytes where it ends inside a character.
Json piece_of(std::string_view bytes) {
  if (is_well_formed(bytes)) return std::string(bytes);
  Json numbers = Json::array();
  for (const char byte : bytes) numbers.push_back(static_cast<unsigned char>(byte));
  return numbers;
}

}  // namespace

void tokenize(const RequestContext& context) {
  auto parsed = parse_tokenize_request(context.request.body, context.served());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return context.refuse(*error);
  const auto& request = std::get<TokenizeRequest>(parsed);
  if (const auto error = context.check_model(request.model)) return context.refuse(*error);
  const auto tokens = tokens_of(context, request);
  if (const auto* error = std::get_if<ApiError>(&tokens)) return context.refuse(*error);
  const auto& ids                   = std::get<0>(tokens);
  const model::Tokenizer& tokenizer = *context.model->checkpoint.tokenizer;
  Json reply = {{"count", ids.size()}, {"max_model_len", context.model->generator.max_context()}};
  Json& list = reply["tokens"] = Json::array();
  for (const TokenId id : ids)
    list.push_back(request.with_pieces ? Json{{"id", id}, {"piece", piece_of(tokenizer.bytes(id))}}
                                       : Json(id));
  if (request.with_strings) {
    Json& texts = reply["token_strs"] = Json::array();
    for (const TokenId id : ids) texts.push_back(well_formed(tokenizer.bytes(id)));
  }
  context.respond(reply);
}

void detokenize(const RequestContext& context) {
  auto parsed = parse_detokenize_request(context.request.body, context.served());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return context.refuse(*error);
  const auto& request = std::get<DetokenizeRequest>(parsed);
  if (const auto error = context.check_model(request.model)) return context.refuse(*error);
  const std::string text = context.model->checkpoint.tokenizer->decode(request.tokens);
  context.respond({{"prompt", text}, {"content", text}});
}

}  // namespace fathom::serve
