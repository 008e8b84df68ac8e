#include <gtest/gtest.h>

#include <string>

#include "serve/chat_completion_request.h"
#include "serve/expect_parsed.h"

namespace fathom::serve {
namespace {

using Role = ChatMessage::Role;

constexpr const char* kMessages = R"("messages":[{"role":"user","content":"hi"}])";
constexpr const char* kTools =
    R"("tools":[{"type":"function","function":{"name":"f","parameters":{"b":1,"a":2}}},
                                              {"type":"function","function":{"name":"g","description":"G"}}])";

std::string with_messages(const std::string& fields) {
  return "{" + std::string(kMessages) + "," + fields + "}";
}
std::string conversation(const std::string& messages) { return "{\"messages\":[" + messages + "]}"; }
ChatCompletionRequest parsed(const std::string& body) {
  return accepted(parse_chat_completion_request(body, kServed), body);
}
void expect_refused(const std::string& param, const std::string& body) {
  expect_refused(parse_chat_completion_request(body, kServed), param, body);
}

TEST(ChatCompletionRequest, Defaults) {
  const ChatCompletionRequest request = parsed("{" + std::string(kMessages) + "}");
  ASSERT_EQ(request.messages.size(), 1u);
  EXPECT_EQ(request.messages[0].role, Role::user);
  EXPECT_EQ(request.messages[0].content, "hi");
  EXPECT_EQ(request.options.model, "");
  EXPECT_EQ(request.reasoning_effort, "medium");
  EXPECT_TRUE(request.include_reasoning && request.parallel_tool_calls);
  EXPECT_EQ(request.tool_choice.kind, ToolChoice::Kind::none);
  const GenerationOptions& o = request.options;
  EXPECT_EQ(o.sampling.temperature, 0.7);
  EXPECT_EQ(o.sampling.top_p, 0.9);
  EXPECT_EQ(o.sampling.top_k, 40);
  EXPECT_FALSE(o.sampling.logprobs || o.max_tokens || o.seed);
  EXPECT_EQ(o.n, 1);
  EXPECT_FALSE(o.stream || o.include_usage || o.continuous_usage_stats || o.ignore_eos);
  EXPECT_TRUE(o.skip_special_tokens);
  EXPECT_TRUE(o.stop.empty() && o.stop_token_ids.empty() && o.cache_salt.empty() && o.request_id.empty());
  EXPECT_EQ(o.format.kind, ResponseFormat::Kind::text);
  EXPECT_EQ(o.ping_interval, std::chrono::seconds(30));
}

TEST(ChatCompletionRequest, Options) {
  const ChatCompletionRequest request = parsed(with_messages(
      R"("model":"m","temperature":0,"top_p":1,"top_k":-1,"min_p":0.5,"repetition_penalty":1.1,"presence_penalty":-2,
         "frequency_penalty":2,"logit_bias":{"0":-100,"999":1.5,"5":null},"seed":-7,"max_tokens":4096,
         "max_completion_tokens":20,"min_tokens":20,"n":3,"stop":["a","\u0000b"],"stop_token_ids":[0,999],
         "ignore_eos":true,"include_stop_str_in_output":true,"skip_special_tokens":false,"stream":true,
         "stream_options":{"include_usage":true,"continuous_usage_stats":true},"sse_ping_interval":5,"priority":-3,"cache_salt":"s",
         "request_id":"r-1","logprobs":true,"top_logprobs":20,"reasoning_effort":"xhigh","include_reasoning":false,
         "parallel_tool_calls":false,"unknown":{"x":[1]},"user":5,"prompt_logprobs":null,"bad_words":[],"echo":false)"));
  const GenerationOptions& o          = request.options;
  EXPECT_EQ(request.options.model, "m");
  EXPECT_EQ(o.sampling.temperature, 0);
  EXPECT_EQ(o.sampling.top_p, 1);
  EXPECT_EQ(o.sampling.top_k, 0);
  EXPECT_EQ(o.sampling.min_p, 0.5);
  EXPECT_EQ(o.sampling.repetition_penalty, 1.1);
  EXPECT_EQ(o.sampling.presence_penalty, -2);
  EXPECT_EQ(o.sampling.frequency_penalty, 2);
  EXPECT_EQ(o.sampling.logit_bias, (std::map<model::TokenId, float>{{0, -100.f}, {999, 1.5f}}));
  EXPECT_EQ(o.sampling.logprobs, 20);
  EXPECT_TRUE(engine::check(o.sampling, kServed.vocab_size));
  EXPECT_EQ(o.seed, static_cast<uint64_t>(-7));
  EXPECT_EQ(o.max_tokens, 20);
  EXPECT_EQ(o.min_tokens, 20);
  EXPECT_EQ(o.n, 3);
  EXPECT_EQ(o.stop, (std::vector<std::string>{"a", std::string("\0b", 2)}));
  EXPECT_EQ(o.stop_token_ids, (std::vector<model::TokenId>{0, 999}));
  EXPECT_TRUE(o.ignore_eos && o.include_stop_str_in_output && !o.skip_special_tokens);
  EXPECT_TRUE(o.stream && o.include_usage && o.continuous_usage_stats);
  EXPECT_EQ(o.ping_interval, std::chrono::seconds(5));
  for (const char* never : {"0", "-1"})
    EXPECT_EQ(
        parsed(with_messages(R"("sse_ping_interval":)" + std::string(never))).options.ping_interval.count(),
        0);
  EXPECT_EQ(o.priority, -3);
  EXPECT_EQ(o.cache_salt, "s");
  // llama.cpp's names are used where the others are absent.
  const GenerationOptions other = parsed(with_messages(R"("n_predict":7,"repeat_penalty":1.5)")).options;
  EXPECT_EQ(other.max_tokens, 7);
  EXPECT_EQ(other.sampling.repetition_penalty, 1.5);
  EXPECT_FALSE(parsed(with_messages(R"("n_predict":-1)")).options.max_tokens);
  const GenerationOptions both =
      parsed(with_messages(R"("max_tokens":5,"n_predict":7,"repetition_penalty":2,"repeat_penalty":1.5)"))
          .options;
  EXPECT_EQ(both.max_tokens, 5);
  EXPECT_EQ(both.sampling.repetition_penalty, 2);
  EXPECT_FALSE(o.thinking_token_budget);
  EXPECT_EQ(parsed(with_messages(R"("thinking_token_budget":0)")).options.thinking_token_budget, 0);
  EXPECT_EQ(parsed(with_messages(R"("thinking_token_budget":-1,"thinking_budget_tokens":9)"))
                .options.thinking_token_budget,
            -1);
  EXPECT_EQ(parsed(with_messages(R"("thinking_budget_tokens":99999)")).options.thinking_token_budget, 99999);
  EXPECT_EQ(o.request_id, "r-1");
  EXPECT_EQ(request.reasoning_effort, "high");
  EXPECT_FALSE(request.include_reasoning || request.parallel_tool_calls);

  EXPECT_EQ(parsed(with_messages(R"("stop":"one")")).options.stop, std::vector<std::string>{"one"});
  EXPECT_EQ(parsed(with_messages(R"("logprobs":true)")).options.sampling.logprobs, 0);
  EXPECT_FALSE(parsed(with_messages(R"("seed":-1)")).options.seed);
  EXPECT_EQ(parsed(with_messages(R"("top_k":1000)")).options.sampling.top_k, 0);
  EXPECT_EQ(parsed(with_messages(R"("top_k":999)")).options.sampling.top_k, 999);
  EXPECT_EQ(parsed(with_messages(R"("temperature":1,"temperature":0.25)")).options.sampling.temperature,
            0.25);
}

TEST(ChatCompletionRequest, Efforts) {
  for (const auto& [word, effort] : {std::pair{"none", "low"},
                                     {"minimal", "low"},
                                     {"low", "low"},
                                     {"medium", "medium"},
                                     {"high", "high"},
                                     {"max", "high"}}) {
    EXPECT_EQ(parsed(with_messages("\"reasoning_effort\":\"" + std::string(word) + "\"")).reasoning_effort,
              effort);
    EXPECT_EQ(
        parsed(with_messages("\"chat_template_kwargs\":{\"reasoning_effort\":\"" + std::string(word) + "\"}"))
            .reasoning_effort,
        effort);
  }
}

struct Wrong {
  const char* param;
  const char* fields;
};

TEST(ChatCompletionRequest, RefusesEachFieldByName) {
  for (
      const auto& [param, fields] : std::initializer_list<Wrong>{
          {"model", R"("model":1)"},
          {"temperature", R"("temperature":-0.1)"},
          {"temperature", R"("temperature":1e308)"},
          {"temperature", R"("temperature":"1")"},
          {"top_p", R"("top_p":0)"},
          {"top_p", R"("top_p":1.01)"},
          {"top_k", R"("top_k":-2)"},
          {"top_k", R"("top_k":1.5)"},
          {"top_k", R"("top_k":1e30)"},
          {"min_p", R"("min_p":2)"},
          {"repetition_penalty", R"("repetition_penalty":0)"},
          {"repetition_penalty", R"("repetition_penalty":1e-300)"},
          {"repeat_penalty", R"("repeat_penalty":0)"},
          {"thinking_token_budget", R"("thinking_token_budget":-2)"},
          {"thinking_budget_tokens", R"("thinking_budget_tokens":"many")"},
          {"n_predict", R"("n_predict":0)"},
          {"n_predict", R"("n_predict":-2)"},
          {"n_predict", R"("n_predict":4097)"},
          {"presence_penalty", R"("presence_penalty":2.1)"},
          {"frequency_penalty", R"("frequency_penalty":-2.1)"},
          {"logit_bias", R"("logit_bias":[1])"},
          {"logit_bias['1000']", R"("logit_bias":{"1000":1})"},
          {"logit_bias['-1']", R"("logit_bias":{"-1":1})"},
          {"logit_bias['1 ']", R"("logit_bias":{"1 ":1})"},
          {"logit_bias['99999999999']", R"("logit_bias":{"99999999999":1})"},
          {"logit_bias['']", R"("logit_bias":{"":1})"},
          {"logit_bias['1']", R"("logit_bias":{"1":100.5})"},
          {"logit_bias['1']", R"("logit_bias":{"1":"x"})"},
          {"seed", R"("seed":1.5)"},
          {"seed", R"("seed":9223372036854775808)"},
          {"max_tokens", R"("max_tokens":0)"},
          {"max_tokens", R"("max_tokens":-1)"},
          {"max_tokens", R"("max_tokens":4097)"},
          {"max_tokens", R"("max_tokens":true)"},
          {"max_completion_tokens", R"("max_completion_tokens":0,"max_tokens":5)"},
          {"max_tokens", R"("max_completion_tokens":5,"max_tokens":0)"},
          {"min_tokens", R"("min_tokens":-1)"},
          {"min_tokens", R"("max_tokens":5,"min_tokens":6)"},
          {"seed", R"("seed":-9223372036854775809)"},
          {"n", R"("n":0)"},
          {"n", R"("n":129)"},
          {"stop", R"("stop":"")"},
          {"stop", R"("stop":{})"},
          {"stop[1]", R"("stop":["a",""])"},
          {"stop[0]", R"("stop":[null])"},
          {"stop[0]", R"("stop":[1])"},
          {"stop", R"("stop":["1","2","3","4","5","6","7","8","9","0","1","2","3","4","5","6","7"])"},
          {"stop_token_ids", R"("stop_token_ids":5)"},
          {"stop_token_ids[0]", R"("stop_token_ids":[1000])"},
          {"ignore_eos", R"("ignore_eos":1)"},
          {"stream", R"("stream":"true")"},
          {"stream_options", R"("stream_options":{"include_usage":true})"},
          {"stream_options", R"("stream":true,"stream_options":[])"},
          {"stream_options.include_usage", R"("stream":true,"stream_options":{"include_usage":1})"},
          {"priority", R"("priority":3000000000)"},
          {"sse_ping_interval", R"("sse_ping_interval":-2)"},
          {"sse_ping_interval", R"("sse_ping_interval":0.5)"},
          {"sse_ping_interval", R"("sse_ping_interval":86401)"},
          {"cache_salt", R"("cache_salt":"")"},
          {"request_id", R"("request_id":"a\r\nX: y")"},
          {"request_id", R"("request_id":"")"},
          {"logprobs", R"("logprobs":5)"},
          {"top_logprobs", R"("top_logprobs":5)"},
          {"top_logprobs", R"("logprobs":true,"top_logprobs":21)"},
          {"top_logprobs", R"("logprobs":true,"top_logprobs":-1)"},
          {"reasoning_effort", R"("reasoning_effort":"huge")"},
          {"include_reasoning", R"("include_reasoning":"yes")"},
          {"parallel_tool_calls", R"("parallel_tool_calls":0)"},
          {"prompt_logprobs", R"("prompt_logprobs":0)"},
          {"allowed_token_ids", R"("allowed_token_ids":[1])"},
          {"bad_words", R"("bad_words":["x"])"},
          {"functions", R"("functions":[{}])"},
          {"echo", R"("echo":true)"},
          {"add_generation_prompt", R"("add_generation_prompt":false)"},
          {"continue_final_message", R"("continue_final_message":true)"},
          {"chat_template", R"("chat_template":"{{x}}")"},
          {"guided_regex", R"("guided_regex":"a+")"},
          {"tools", R"("tools":{})"},
          {"tools[0].type", R"("tools":[{}])"},
          {"tools[0].type", R"("tools":[null])"},
          {"tools[0].type", R"("tools":[{"type":"web_search"}])"},
          {"tools[0].function.name", R"("tools":[{"type":"function"}])"},
          {"tools[0].function.name", R"("tools":[{"type":"function","function":{"name":"a b"}}])"},
          {"tools[0].function.name", R"("tools":[{"type":"function","function":{"name":""}}])"},
          {"tools[0].function.parameters",
           R"("tools":[{"type":"function","function":{"name":"f","parameters":[]}}])"},
          {"tools[1].function.name",
           R"("tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}])"},
          {"tool_choice", R"("tool_choice":"any")"},
          {"tool_choice", R"("tool_choice":5)"},
          {"tool_choice", R"("tool_choice":"required")"},
          {"tool_choice.function.name", R"("tool_choice":{"type":"function","function":{"name":"f"}})"},
          {"tool_choice.type", R"("tool_choice":{"type":"allowed_tools"})"},
          {"response_format", R"("response_format":"json")"},
          {"response_format.type", R"("response_format":{})"},
          {"response_format.type", R"("response_format":{"type":"structural_tag"})"},
          {"response_format.json_schema.name", R"("response_format":{"type":"json_schema"})"},
          {"response_format.json_schema.schema",
           R"("response_format":{"type":"json_schema","json_schema":{"name":"x"}})"},
          {"response_format.json_schema.schema",
           R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":[]}})"},
          {"structured_outputs", R"("structured_outputs":[])"},
          {"structured_outputs.regex", R"("structured_outputs":{"regex":"a"})"},
          {"structured_outputs.json", R"("structured_outputs":{"json":"{"})"},
          {"structured_outputs.json", R"("structured_outputs":{"json":5})"},
          {"structured_outputs.json", R"("structured_outputs":{"json":{},"json_object":true})"},
          {"structured_outputs.json",
           R"("response_format":{"type":"json_object"},"structured_outputs":{"json":{}})"},
          {"guided_json", R"("guided_json":[1])"},
      })
    expect_refused(param, with_messages(fields));
  expect_refused("stop", with_messages("\"stop\":\"" + std::string(1025, 'x') + "\""));
  expect_refused("temperature", with_messages("\"temperature\":\"" + std::string(100'000, 'x') + "\""));
  expect_refused("reasoning_effort",
                 with_messages("\"reasoning_effort\":\"" + std::string(100'000, 'x') + "\""));
}

TEST(ChatCompletionRequest, Messages) {
  const ChatCompletionRequest request = parsed(conversation(
      R"({"role":"system","content":"S"},{"role":"developer","content":[{"type":"text","text":"D"},{"type":"text","text":"E"}]},
         {"role":"user","content":[],"name":"Bob"},
         {"role":"assistant","content":null,"reasoning":"R","tool_calls":[
            {"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},
            {"id":"2","type":"function","function":{"name":"g"}}]},
         {"role":"tool","tool_call_id":"2","content":"G"},{"role":"tool","tool_call_id":"1","content":"F"},
         {"role":"tool","name":"h","content":"H"},
         {"role":"assistant","content":"done","reasoning_content":"Q"})"));
  const auto& m                       = request.messages;
  ASSERT_EQ(m.size(), 8u);
  EXPECT_EQ(m[0].role, Role::system);
  EXPECT_EQ(m[1].role, Role::developer);
  EXPECT_EQ(m[1].content, "DE");
  EXPECT_EQ(m[2].content, "");
  EXPECT_EQ(m[3].reasoning, "R");
  ASSERT_EQ(m[3].tool_calls.size(), 2u);
  EXPECT_EQ(m[3].tool_calls[0].arguments, "{\"x\":1}");
  EXPECT_EQ(m[3].tool_calls[1].arguments, "{}");
  EXPECT_EQ(m[4].function, "g");
  EXPECT_EQ(m[5].function, "f");
  EXPECT_EQ(m[6].function, "h");
  EXPECT_EQ(m[7].reasoning, "Q");
  EXPECT_EQ(m[7].content, "done");
}

TEST(ChatCompletionRequest, RefusesEachMessageByPlace) {
  expect_refused("messages", "{}");
  expect_refused("messages", R"({"messages":[]})");
  expect_refused("messages", R"({"messages":"hi"})");
  for (
      const auto& [param, messages] : std::initializer_list<Wrong>{
          {"messages[0]", "null"},
          {"messages[0]", "5"},
          {"messages[0].role", R"({"content":"x"})"},
          {"messages[0].role", R"({"role":"function","content":"x"})"},
          {"messages[0].content", R"({"role":"user"})"},
          {"messages[0].content", R"({"role":"system","content":null})"},
          {"messages[0].content", R"({"role":"user","content":{"text":"x"}})"},
          {"messages[1].content[1].type",
           R"({"role":"user","content":""},{"role":"user","content":[{"type":"text","text":""},{"type":"image_url"}]})"},
          {"messages[0].content[0].type", R"({"role":"user","content":[{"text":"x"}]})"},
          {"messages[0].content[0].text", R"({"role":"user","content":[{"type":"text"}]})"},
          {"messages[0].content[0]", R"({"role":"user","content":["x"]})"},
          {"messages[0].content[0].type", R"({"role":"user","content":[null]})"},
          {"messages[0].tool_call_id", R"({"role":"tool","content":"x"})"},
          {"messages[1].tool_call_id",
           R"({"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f"}}]},{"role":"tool","tool_call_id":"2","content":"x"})"},
          {"messages[0].name", R"({"role":"tool","name":"<|end|>","content":"x"})"},
          {"messages[0].tool_calls", R"({"role":"assistant","tool_calls":{}})"},
          {"messages[0].tool_calls[0].function.name", R"({"role":"assistant","tool_calls":[{"id":"1"}]})"},
          {"messages[0].tool_calls[0].function.name",
           R"({"role":"assistant","tool_calls":[{"id":"1","function":{"name":"a to=b"}}]})"},
          {"messages[0].tool_calls[0].function.arguments",
           R"({"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":{}}}]})"},
          {"messages[0].reasoning", R"({"role":"assistant","reasoning":[]})"},
          {"messages[0].reasoning_content", R"({"role":"assistant","reasoning":"x","reasoning_content":[]})"},
      })
    expect_refused(param, conversation(messages));
}

TEST(ChatCompletionRequest, ToolsAndTheirChoice) {
  const std::string tools             = kTools;
  const ChatCompletionRequest request = parsed(with_messages(tools));
  ASSERT_EQ(request.tools.size(), 2u);
  EXPECT_EQ(request.tools[0].schema, R"({"b":1,"a":2})");
  EXPECT_EQ(request.tools[1].description, "G");
  EXPECT_EQ(request.tools[1].schema, "");
  EXPECT_EQ(request.tool_choice.kind, ToolChoice::Kind::automatic);
  const auto choice = [&](const std::string& word) {
    return parsed(with_messages(tools + ",\"tool_choice\":" + word)).tool_choice;
  };
  EXPECT_EQ(choice("\"none\"").kind, ToolChoice::Kind::none);
  EXPECT_EQ(choice("\"auto\"").kind, ToolChoice::Kind::automatic);
  EXPECT_EQ(choice("\"required\"").kind, ToolChoice::Kind::required);
  const ToolChoice named = choice(R"({"type":"function","function":{"name":"g"}})");
  EXPECT_EQ(named.kind, ToolChoice::Kind::named);
  EXPECT_EQ(named.name, "g");
  EXPECT_EQ(parsed(with_messages(R"("tools":[],"tool_choice":"auto")")).tool_choice.kind,
            ToolChoice::Kind::none);
  expect_refused("tool_choice.function.name",
                 with_messages(tools + R"(,"tool_choice":{"type":"function","function":{"name":"h"}})"));
}

TEST(ChatCompletionRequest, TooManyToolsOrTooLong) {
  const auto tools = [](int count, size_t bytes) {
    std::string text = "\"tools\":[";
    for (int i = 0; i < count; ++i)
      text += std::string(i ? "," : "") + R"({"type":"function","function":{"name":"f)" + std::to_string(i) +
              R"(","parameters":{"d":")" + std::string(bytes, 'x') + "\"}}}";
    return text + "]";
  };
  EXPECT_EQ(parsed(with_messages(tools(128, 1))).tools.size(), 128u);
  expect_refused("tools", with_messages(tools(129, 1)));
  expect_refused("tools", with_messages(tools(64, 1 << 15)));
  expect_refused("tools[0].function.parameters", with_messages(tools(1, 1 << 21)));
}

TEST(ChatCompletionRequest, ResponseFormats) {
  using Kind        = ResponseFormat::Kind;
  const auto format = [](const std::string& fields) { return parsed(with_messages(fields)).options.format; };
  const auto by_schema = format(
      R"("response_format":{"type":"json_schema","json_schema":{"name":"n","description":"d","strict":true,"schema":{"z":1,"a":2}}})");
  EXPECT_EQ(by_schema.kind, Kind::json_schema);
  EXPECT_EQ(by_schema.schema.name, "n");
  EXPECT_EQ(by_schema.schema.description, "d");
  EXPECT_EQ(by_schema.schema.schema, R"({"z":1,"a":2})");
  EXPECT_EQ(format(R"("response_format":{"type":"json_object"})").kind, Kind::json_object);
  EXPECT_EQ(format(R"("response_format":{"type":"text"})").kind, Kind::text);
  EXPECT_EQ(format(R"("structured_outputs":{"json_object":true})").kind, Kind::json_object);
  for (const char* fields :
       {R"("structured_outputs":{"json":{"z":1,"a":2}})", R"("guided_json":{"z":1,"a":2})",
        R"("structured_outputs":{"json":"{\"z\": 1, \"a\": 2}"})",
        R"("response_format":{"type":"text"},"guided_json":{"z":1,"a":2})"}) {
    EXPECT_EQ(format(fields).kind, Kind::json_schema) << fields;
    EXPECT_EQ(format(fields).schema.schema, R"({"z":1,"a":2})") << fields;
  }
}

}  // namespace
}  // namespace fathom::serve
