// Thousands of mutated bodies: each is either parsed into a request that keeps its invariants, or refused
// with a reason.

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "core/utf8.h"
#include "serve/chat_completion_request.h"
#include "serve/chat_prompt.h"
#include "serve/completion_request.h"
#include "serve/expect_parsed.h"
#include "serve/responses_request.h"
#include "serve/tokenize_request.h"

namespace fathom::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMutants = 1500;  // for each seed

const std::vector<std::string> kSeeds{
    R"({"model":"m","messages":[{"role":"system","content":"S"},{"role":"user","content":[{"type":"text","text":"a"}]},
        {"role":"assistant","content":null,"reasoning":"r","tool_calls":[{"id":"1","type":"function","function":
        {"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"x"}],"tools":[{"type":"function",
        "function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"oneOf":[{"type":
        "string","default":"x"},{"type":["integer","null"]}]},"b":{"type":"array","items":{"enum":["p"]}}},"required":
        ["a"]}}}],"tool_choice":{"type":"function","function":{"name":"f"}},"response_format":{"type":"json_schema",
        "json_schema":{"name":"n","schema":{"type":"object"}}},"reasoning_effort":"low","logprobs":true,"top_logprobs":2})",
    R"({"messages":[{"role":"user","content":"hi"}],"temperature":0.5,"top_p":0.5,"top_k":5,"min_p":0.1,"seed":3,"n":2,
        "repetition_penalty":1.5,"presence_penalty":1,"frequency_penalty":-1,"logit_bias":{"5":1.5},"max_tokens":9,
        "min_tokens":2,"stop":["a","b"],"stop_token_ids":[1,2],"ignore_eos":true,"stream":true,"stream_options":
        {"include_usage":true},"priority":1,"cache_salt":"s","request_id":"r","structured_outputs":{"json":{"a":1}}})",
    R"({"prompt":[[1,2],[3]],"echo":true,"best_of":1,"n":1,"max_tokens":5,"guided_json":"{}"})",
    R"({"prompt":["a","b"],"logprobs":3,"suffix":null,"n":3})",
    R"({"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"function_call","call_id":"1",
        "name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"1","output":"x"},{"type":"reasoning",
        "content":[{"type":"reasoning_text","text":"r"}]}],"instructions":"I","reasoning":{"effort":"high"},
        "max_output_tokens":5,"tools":[{"type":"function","name":"f","parameters":{}}],"tool_choice":"required",
        "text":{"format":{"type":"json_object"}},"metadata":{"a":"b"}})",
    R"({"prompt":"x","messages":[],"content":"y","tokens":[1,2,3],"parse_special":true,"with_pieces":false})"};

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  std::string mutant(const std::string& seed) {
    if (below(3) == 0) return with_bytes_changed(seed);
    Json json = Json::parse(seed);
    for (size_t i = 0, count = 1 + below(3); i < count; ++i) change(json);
    std::string text = json.dump();
    return below(10) == 0 ? with_bytes_changed(text) : text;
  }

 private:
  size_t below(size_t limit) { return random_() % limit; }

  Json odd_value() {
    static const std::vector<Json> kOdd{nullptr,
                                        true,
                                        false,
                                        0,
                                        -1,
                                        1,
                                        1.5,
                                        1e308,
                                        -1e308,
                                        5e-324,
                                        INT64_MIN,
                                        INT64_MAX,
                                        UINT64_MAX,
                                        999,
                                        1000,
                                        4097,
                                        1e19,
                                        "",
                                        "x",
                                        "auto",
                                        "none",
                                        "function",
                                        "text",
                                        "json_schema",
                                        "user",
                                        "assistant",
                                        "tool",
                                        "reasoning",
                                        std::string("\0", 1),
                                        "<|end|>",
                                        "\xf0\x9f\x99\x82",
                                        "f",
                                        "a b",
                                        "\r\n",
                                        std::string(5000, 'x'),
                                        Json::array(),
                                        Json::object(),
                                        Json::array({nullptr}),
                                        Json::array({1, 2}),
                                        Json::array({"a", ""}),
                                        Json::array({Json::array()}),
                                        Json::parse(R"({"type":"text","text":"t"})"),
                                        Json::parse(R"({"a":{"b":{"c":[{}]}}})")};
    return kOdd[below(kOdd.size())];
  }

  // A random place in the tree.
  void change(Json& json) {
    if (json.is_structured() && !json.empty() && below(4) != 0) {
      auto member = json.begin();
      std::advance(member, below(json.size()));
      return change(*member);
    }
    if (json.is_array() && below(2) == 0) {
      json.push_back(odd_value());
    } else if (json.is_object() && below(2) == 0) {
      static const std::vector<std::string> kNames{"type", "name",  "content", "stop", "n",
                                                   "json", "oneOf", "5",       "",     "x"};
      json[kNames[below(kNames.size())]] = odd_value();
    } else {
      json = odd_value();
    }
  }

  std::string with_bytes_changed(std::string text) {
    static const std::vector<std::string> kPieces{"{",
                                                  "}",
                                                  "[",
                                                  "]",
                                                  "\"",
                                                  ",",
                                                  ":",
                                                  "\\",
                                                  "\xff",
                                                  "\xc3",
                                                  "null",
                                                  "1e999",
                                                  "-",
                                                  "\\u0000",
                                                  "\\ud800",
                                                  "[[[[[[[[",
                                                  std::string(1, '\0')};
    for (size_t i = 0, count = 1 + below(4); i < count; ++i) {
      const size_t at = below(text.size() + 1);
      switch (below(4)) {
        case 0:
          text.insert(at, kPieces[below(kPieces.size())]);
          break;
        case 1:
          text.erase(at, below(20));
          break;
        case 2:
          if (at < text.size()) text[at] = static_cast<char>(below(256));
          break;
        default:
          text.insert(at, text.substr(below(text.size() + 1), below(60)));
      }
    }
    return text;
  }

  std::mt19937_64 random_;
};

bool are_ids(const std::vector<model::TokenId>& ids) {
  return std::all_of(ids.begin(), ids.end(), [](auto id) { return id >= 0 && id < kServed.vocab_size; });
}

void expect_kept(const GenerationOptions& o) {
  const auto checked = engine::check(o.sampling, kServed.vocab_size);
  EXPECT_TRUE(checked) << checked.error().message;
  EXPECT_LE(o.sampling.logprobs.value_or(0), kMaxLogprobs);
  const int64_t max_tokens = o.max_tokens.value_or(kServed.max_context);
  EXPECT_TRUE(max_tokens >= 1 && max_tokens <= kServed.max_context);
  EXPECT_TRUE(o.min_tokens >= 0 && o.min_tokens <= max_tokens);
  EXPECT_TRUE(o.n >= 1 && o.n <= kMaxChoices);
  EXPECT_LE(o.stop.size(), static_cast<size_t>(kMaxStops));
  for (const std::string& stop : o.stop) EXPECT_TRUE(!stop.empty() && stop.size() <= kMaxStopBytes);
  EXPECT_TRUE(are_ids(o.stop_token_ids));
  EXPECT_TRUE(o.stream || !o.include_usage);
  const bool by_schema = o.format.kind == ResponseFormat::Kind::json_schema;
  EXPECT_EQ(by_schema, !o.format.schema.schema.empty());
  EXPECT_TRUE(!by_schema || Json::parse(o.format.schema.schema).is_object());
}

void expect_kept(const ChatCompletionRequest& request) {
  expect_kept(request.options);
  EXPECT_FALSE(request.messages.empty());
  EXPECT_TRUE(request.reasoning_effort == "low" || request.reasoning_effort == "medium" ||
              request.reasoning_effort == "high");
  using Kind = ToolChoice::Kind;
  EXPECT_TRUE(!request.tools.empty() || request.tool_choice.kind == Kind::none);
  EXPECT_EQ(request.tool_choice.kind == Kind::named,
            std::any_of(request.tools.begin(), request.tools.end(), [&](const auto& tool) {
              return !request.tool_choice.name.empty() && tool.name == request.tool_choice.name;
            }));
  for (const ChatMessage& message : request.messages)
    EXPECT_EQ(message.role == ChatMessage::Role::tool, !message.function.empty());
  const auto prompt = chat_prompt(request, {.harmony = true});
  ASSERT_TRUE(std::holds_alternative<std::vector<model::HarmonyMessage>>(prompt));
  for (const auto& message : std::get<0>(prompt)) {
    EXPECT_FALSE(message.role.empty());
    EXPECT_TRUE(is_well_formed(message.content));
    EXPECT_EQ(message.recipient.find_first_of(" <|>\n"), std::string::npos);
  }
}

void expect_kept(const CompletionRequest& request) {
  expect_kept(request.options);
  EXPECT_TRUE(request.options.max_tokens);
  EXPECT_FALSE(request.prompts.empty());
  EXPECT_LE(static_cast<int64_t>(request.prompts.size()) * request.options.n, kMaxChoices);
  for (const auto& prompt : request.prompts) {
    EXPECT_FALSE(std::visit([](const auto& text_or_ids) { return text_or_ids.empty(); }, prompt));
    const auto* ids = std::get_if<1>(&prompt);
    EXPECT_TRUE(!ids || are_ids(*ids));
  }
}

void expect_kept(const ResponsesRequest& request) {
  expect_kept(request.chat);
  EXPECT_EQ(request.chat.options.n, 1);
  EXPECT_TRUE(Json::parse(request.metadata).is_object());
}

void expect_kept(const TokenizeRequest& request) {
  if (const auto* chat = std::get_if<ChatCompletionRequest>(&request.input)) expect_kept(*chat);
}

void expect_kept(const DetokenizeRequest& request) { EXPECT_TRUE(are_ids(request.tokens)); }

template <class T>
void expect_request_or_reason(const ApiResult<T>& result, const std::string& body, int& accepted) {
  SCOPED_TRACE(body.substr(0, 2000));
  if (const auto* error = std::get_if<ApiError>(&result)) {
    EXPECT_EQ(error->status, 400);
    EXPECT_FALSE(error->message.empty());
    EXPECT_LT(error->message.size(), 1000u);
    EXPECT_TRUE(is_well_formed(error->message) && is_well_formed(error->param));
  } else {
    ++accepted;
    expect_kept(std::get<T>(result));
  }
}

TEST(RequestFuzz, IsReadOrRefusedWithAReason) {
  Mutator mutator(20260801);
  int accepted[5] = {};
  for (const std::string& seed : kSeeds)
    for (int i = 0; i < kMutants; ++i) {
      const std::string body = mutator.mutant(seed);
      expect_request_or_reason(parse_chat_completion_request(body, kServed), body, accepted[0]);
      expect_request_or_reason(parse_completion_request(body, kServed), body, accepted[1]);
      expect_request_or_reason(parse_responses_request(body, kServed), body, accepted[2]);
      expect_request_or_reason(parse_tokenize_request(body, kServed), body, accepted[3]);
      expect_request_or_reason(parse_detokenize_request(body, kServed), body, accepted[4]);
      if (HasFailure()) return;
    }
  for (const int count : accepted) EXPECT_GT(count, kMutants / 20) << "of what is refused little is tested";
  EXPECT_LT(accepted[0], kMutants * 3 / 2) << "of what is accepted little is wrong";
}

}  // namespace
}  // namespace fathom::serve
