#include <gtest/gtest.h>

#include <string>

#include "serve/completion_request.h"
#include "serve/expect_parsed.h"

namespace fathom::serve {
namespace {

using Ids = std::vector<model::TokenId>;

CompletionRequest parsed_completion(const std::string& body) {
  return accepted(parse_completion_request(body, kServed), body);
}
void expect_completion_refused(const std::string& param, const std::string& body) {
  expect_refused(parse_completion_request(body, kServed), param, body);
}
std::vector<CompletionPrompt> prompts(const std::string& prompt) {
  return parsed_completion("{\"prompt\":" + prompt + "}").prompts;
}

std::string list(const std::string& element, int64_t count) {
  std::string text = "[" + element;
  for (int64_t i = 1; i < count; ++i) text += "," + element;
  return text + "]";
}

TEST(CompletionRequest, Prompts) {
  using Prompts = std::vector<CompletionPrompt>;
  EXPECT_EQ(prompts("\"x\""), (Prompts{"x"}));
  EXPECT_EQ(prompts(R"(["x","\u0000"])"), (Prompts{"x", std::string("\0", 1)}));
  EXPECT_EQ(prompts("[1,2.0,999]"), (Prompts{Ids{1, 2, 999}}));
  EXPECT_EQ(prompts("[[1],[2,3]]"), (Prompts{Ids{1}, Ids{2, 3}}));
  EXPECT_EQ(prompts(list("\"x\"", 128)).size(), 128u);
  EXPECT_EQ(std::get<Ids>(prompts(list("7", 4096))[0]).size(), 4096u);
}

TEST(CompletionRequest, RefusesPromptsByPlace) {
  expect_completion_refused("prompt", "{}");
  expect_completion_refused("prompt", "{\"prompt\":null}");
  for (const auto& [param, prompt] : {std::pair<const char*, std::string>{"prompt", "\"\""},
                                      {"prompt", "[]"},
                                      {"prompt", "5"},
                                      {"prompt", "{}"},
                                      {"prompt[0]", "[\"\"]"},
                                      {"prompt[1]", "[\"x\",1]"},
                                      {"prompt[1]", "[1,\"x\"]"},
                                      {"prompt[0]", "[1000]"},
                                      {"prompt[1]", "[1,-1]"},
                                      {"prompt[1]", "[1,null]"},
                                      {"prompt[0]", "[null]"},
                                      {"prompt[1]", "[[1],[]]"},
                                      {"prompt[1][0]", "[[1],[1000]]"},
                                      {"prompt[1][0]", "[[1],[[1]]]"},
                                      {"prompt[1]", "[[1],2]"},
                                      {"prompt", list("7", 4097)},
                                      {"prompt[0]", "[" + list("7", 4097) + "]"},
                                      {"prompt", list("\"x\"", 129)},
                                      {"prompt", list("[1]", 129)}})
    expect_completion_refused(param, "{\"prompt\":" + prompt + "}");
}

TEST(CompletionRequest, Options) {
  const CompletionRequest request = parsed_completion("{\"prompt\":\"x\"}");
  EXPECT_EQ(request.options.max_tokens, 16);
  EXPECT_EQ(request.options.sampling.temperature, 0.7);
  EXPECT_FALSE(request.echo || request.options.sampling.logprobs);
  const auto with = [](const std::string& fields) {
    return parsed_completion("{\"prompt\":\"x\"," + fields + "}");
  };
  EXPECT_EQ(with("\"min_tokens\":30").options.max_tokens, 30);
  EXPECT_EQ(with("\"max_tokens\":3").options.max_tokens, 3);
  EXPECT_EQ(with("\"n_predict\":3").options.max_tokens, 3);
  EXPECT_FALSE(with("\"n_predict\":-1").options.max_tokens);
  EXPECT_EQ(with("\"logprobs\":0").options.sampling.logprobs, 0);
  EXPECT_EQ(with("\"logprobs\":20").options.sampling.logprobs, 20);
  EXPECT_EQ(with("\"n\":3,\"best_of\":3").options.n, 3);
  EXPECT_TRUE(with("\"echo\":true").echo);
  EXPECT_FALSE(with("\"suffix\":\"\"").echo);
  EXPECT_EQ(with("\"guided_json\":{}").options.format.kind, ResponseFormat::Kind::json_schema);
}

TEST(CompletionRequest, RefusesEachFieldByName) {
  for (const auto& [param, fields] : {std::pair{"logprobs", "\"logprobs\":21"},
                                      {"logprobs", "\"logprobs\":true"},
                                      {"logprobs", "\"logprobs\":-1"},
                                      {"echo", "\"echo\":1"},
                                      {"echo", "\"echo\":true,\"logprobs\":1"},
                                      {"suffix", "\"suffix\":\"y\""},
                                      {"best_of", "\"best_of\":2"},
                                      {"best_of", "\"n\":2,\"best_of\":1"},
                                      {"n", "\"n\":129"},
                                      {"max_tokens", "\"max_tokens\":0"},
                                      {"temperature", "\"temperature\":[]"},
                                      {"prompt_embeds", "\"prompt_embeds\":\"x\""},
                                      {"response_format.type", "\"response_format\":{\"type\":\"x\"}"}})
    expect_completion_refused(param, "{\"prompt\":\"x\"," + std::string(fields) + "}");
  expect_completion_refused("n", "{\"n\":2,\"prompt\":" + list("\"x\"", 65) + "}");
  EXPECT_EQ(parsed_completion("{\"n\":2,\"prompt\":" + list("\"x\"", 64) + "}").prompts.size(), 64u);
}

}  // namespace
}  // namespace fathom::serve
