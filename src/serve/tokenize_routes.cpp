// POST /tokenize and /detokenize: both vLLM's fields and llama.cpp's in one reply.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "model/utf8.h"
#include "serve/api_call.h"

namespace fathom::serve {
namespace {

using Json = nlohmann::ordered_json;
using model::TokenId;

ApiResult<std::vector<TokenId>> tokens_of(const ApiCall& call, const TokenizeRequest& request) {
  if (const auto* chat = std::get_if<ChatRequest>(&request.input)) return call.prompt_of(*chat);
  auto ids = call.model->checkpoint.tokenizer->encode(
      std::get<std::string>(request.input),
      request.recognise_special ? model::AddedTokens::recognised : model::AddedTokens::as_text);
  if (!ids) return bad_request("prompt", ids.error().message);
  return std::move(*ids);
}

// A token may end in the middle of a character: its bytes, then.
Json piece_of(std::string_view bytes) {
  if (model::is_well_formed(bytes)) return std::string(bytes);
  Json numbers = Json::array();
  for (const char byte : bytes) numbers.push_back(static_cast<unsigned char>(byte));
  return numbers;
}

}  // namespace

void tokenize(const ApiCall& call) {
  auto parsed = parse_tokenize_request(call.request.body, call.served());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return call.refuse(*error);
  const auto& request = std::get<TokenizeRequest>(parsed);
  if (const auto error = call.check_model(request.model)) return call.refuse(*error);
  const auto tokens = tokens_of(call, request);
  if (const auto* error = std::get_if<ApiError>(&tokens)) return call.refuse(*error);
  const auto& ids                   = std::get<0>(tokens);
  const model::Tokenizer& tokenizer = *call.model->checkpoint.tokenizer;
  Json reply = {{"count", ids.size()}, {"max_model_len", call.model->generator.max_context()}};
  Json& list = reply["tokens"] = Json::array();
  for (const TokenId id : ids)
    list.push_back(request.with_pieces ? Json{{"id", id}, {"piece", piece_of(tokenizer.bytes(id))}}
                                       : Json(id));
  if (request.with_strings) {
    Json& texts = reply["token_strs"] = Json::array();
    for (const TokenId id : ids) texts.push_back(model::well_formed(tokenizer.bytes(id)));
  }
  call.respond(reply);
}

void detokenize(const ApiCall& call) {
  auto parsed = parse_detokenize_request(call.request.body, call.served());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return call.refuse(*error);
  const auto& request = std::get<DetokenizeRequest>(parsed);
  if (const auto error = call.check_model(request.model)) return call.refuse(*error);
  const std::string text = call.model->checkpoint.tokenizer->decode(request.tokens);
  call.respond({{"prompt", text}, {"content", text}});
}

}  // namespace fathom::serve
