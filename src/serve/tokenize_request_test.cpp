#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "serve/expect_parsed.h"
#include "serve/tokenize_request.h"

namespace fathom::serve {
namespace {

using Ids = std::vector<model::TokenId>;

TEST(TokenizeRequest, TextInEitherForm) {
  const auto tokenize = [](const std::string& body) {
    return accepted(parse_tokenize_request(body, kServed), body);
  };
  const TokenizeRequest vllm =
      tokenize(R"({"model":"m","prompt":"x","add_special_tokens":false,"return_token_strs":true})");
  EXPECT_EQ(vllm.model, "m");
  EXPECT_EQ(std::get<std::string>(vllm.input), "x");
  EXPECT_TRUE(vllm.with_strings && vllm.recognise_special && !vllm.with_pieces);
  const TokenizeRequest llama = tokenize(R"({"content":"","parse_special":false,"with_pieces":true})");
  EXPECT_EQ(std::get<std::string>(llama.input), "");
  EXPECT_TRUE(llama.with_pieces && !llama.with_strings && !llama.recognise_special);
  const TokenizeRequest chat =
      tokenize(R"({"messages":[{"role":"user","content":"x"}],"reasoning_effort":"low"})");
  EXPECT_EQ(std::get<ChatCompletionRequest>(chat.input).messages[0].content, "x");
  EXPECT_EQ(std::get<ChatCompletionRequest>(chat.input).reasoning_effort, "low");
  for (const auto& [param, body] :
       {std::pair{"content", "{}"},
        {"prompt", "{\"prompt\":[1]}"},
        {"content", "{\"content\":1}"},
        {"messages", "{\"messages\":[]}"},
        {"parse_special", "{\"content\":\"\",\"parse_special\":1}"},
        {"with_pieces", "{\"content\":\"\",\"with_pieces\":1}"},
        {"return_token_strs", "{\"content\":\"\",\"with_pieces\":true,\"return_token_strs\":1}"},
        {"", "[]"}})
    expect_refused(parse_tokenize_request(body, kServed), param, body);
}

TEST(DetokenizeRequest, Tokens) {
  const auto detokenize = [](const std::string& body) {
    return accepted(parse_detokenize_request(body, kServed), body);
  };
  EXPECT_EQ(detokenize("{\"tokens\":[5,0,999],\"model\":\"m\"}").tokens, (Ids{5, 0, 999}));
  EXPECT_EQ(detokenize("{\"tokens\":[]}").tokens, Ids{});
  for (const auto& [param, body] : {std::pair{"tokens", "{}"},
                                    {"tokens", "{\"tokens\":\"x\"}"},
                                    {"tokens[0]", "{\"tokens\":[1000]}"},
                                    {"tokens[1]", "{\"tokens\":[1,\"2\"]}"},
                                    {"", ""}})
    expect_refused(parse_detokenize_request(body, kServed), param, body);
}

}  // namespace
}  // namespace fathom::serve
