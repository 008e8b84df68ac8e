#include <gtest/gtest.h>

#include <string>

#include "serve/expect_parsed.h"
#include "serve/responses_request.h"

namespace fathom::serve {
namespace {

using Role = ChatMessage::Role;

ResponsesRequest parsed_responses(const std::string& body) {
  return accepted(parse_responses_request(body, kServed), body);
}
void expect_responses_refused(const std::string& param, const std::string& body) {
  expect_refused(parse_responses_request(body, kServed), param, body);
}

TEST(ResponsesRequest, InputAsText) {
  const ResponsesRequest request = parsed_responses(
      R"({"model":"m","input":"hi","instructions":"Be brief.","reasoning":{"effort":"high","summary":"auto"},
          "max_output_tokens":7,"temperature":0.5,"top_p":0.25,"stream":true,"store":true,"metadata":{"b":"1","a":"2"},
          "background":false,"previous_response_id":null,"parallel_tool_calls":false,"top_logprobs":0,"truncation":"auto"})");
  const ChatCompletionRequest& chat = request.chat;
  ASSERT_EQ(chat.messages.size(), 2u);
  EXPECT_EQ(chat.messages[0].role, Role::developer);
  EXPECT_EQ(chat.messages[0].content, "Be brief.");
  EXPECT_EQ(chat.messages[1].role, Role::user);
  EXPECT_EQ(chat.messages[1].content, "hi");
  EXPECT_EQ(request.instructions, "Be brief.");
  EXPECT_EQ(request.metadata, R"({"b":"1","a":"2"})");
  EXPECT_EQ(chat.options.model, "m");
  EXPECT_EQ(chat.reasoning_effort, "high");
  EXPECT_EQ(chat.options.max_tokens, 7);
  EXPECT_EQ(chat.options.sampling.temperature, 0.5);
  EXPECT_EQ(chat.options.sampling.top_p, 0.25);
  EXPECT_TRUE(chat.options.stream);
  EXPECT_FALSE(chat.parallel_tool_calls);

  const ResponsesRequest plain = parsed_responses(R"({"input":"hi"})");
  EXPECT_EQ(plain.metadata, "{}");
  EXPECT_EQ(plain.chat.reasoning_effort, "medium");
  EXPECT_FALSE(plain.chat.options.max_tokens || plain.chat.options.stream);
  EXPECT_EQ(plain.chat.messages.size(), 1u);
}

TEST(ResponsesRequest, InputAsItems) {
  const auto messages = parsed_responses(R"({"input":[
      {"role":"system","content":"S"},
      {"type":"message","role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
      {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"R"}]},
      {"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"xyz"},
      {"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},
      {"type":"function_call","call_id":"c2","name":"g","arguments":"{\"x\":1}"},
      {"type":"function_call_output","call_id":"c2","output":"two"},
      {"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"one"}]},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"done","annotations":[]}]}]})")
                            .chat.messages;
  ASSERT_EQ(messages.size(), 9u);
  EXPECT_EQ(messages[0].role, Role::system);
  EXPECT_EQ(messages[1].content, "ab");
  EXPECT_EQ(messages[2].reasoning, "R");
  EXPECT_EQ(messages[3].reasoning, "");
  EXPECT_EQ(messages[4].tool_calls.at(0).name, "f");
  EXPECT_EQ(messages[5].tool_calls.at(0).arguments, "{\"x\":1}");
  EXPECT_EQ(messages[6].function, "g");
  EXPECT_EQ(messages[6].content, "two");
  EXPECT_EQ(messages[7].function, "f");
  EXPECT_EQ(messages[7].content, "one");
  EXPECT_EQ(messages[7].role, Role::tool);
  EXPECT_EQ(messages[8].role, Role::assistant);
  EXPECT_EQ(messages[8].content, "done");
}

TEST(ResponsesRequest, FlatToolsAndFormats) {
  const auto chat =
      parsed_responses(R"({"input":"x","tools":[{"type":"function","name":"f","description":"F","strict":true,
      "parameters":{"z":1,"a":2}}],"tool_choice":{"type":"function","name":"f"},
      "text":{"format":{"type":"json_schema","name":"n","schema":{"z":1,"a":2}},"verbosity":"low"}})")
          .chat;
  EXPECT_EQ(chat.tools.at(0).name, "f");
  EXPECT_EQ(chat.tools[0].description, "F");
  EXPECT_EQ(chat.tools[0].schema, R"({"z":1,"a":2})");
  EXPECT_EQ(chat.tool_choice.kind, ToolChoice::Kind::named);
  EXPECT_EQ(chat.tool_choice.name, "f");
  EXPECT_EQ(chat.options.format.kind, ResponseFormat::Kind::json_schema);
  EXPECT_EQ(chat.options.format.schema.name, "n");
  EXPECT_EQ(chat.options.format.schema.schema, R"({"z":1,"a":2})");
  EXPECT_EQ(
      parsed_responses(R"({"input":"x","text":{"format":{"type":"json_object"}}})").chat.options.format.kind,
      ResponseFormat::Kind::json_object);
  EXPECT_EQ(parsed_responses(R"({"input":"x","text":{}})").chat.options.format.kind,
            ResponseFormat::Kind::text);
}

TEST(ResponsesRequest, RefusesEachFieldByName) {
  for (
      const auto& [param, body] : {
          std::pair{"input", "{}"},
          {"input", R"({"input":[]})"},
          {"input", R"({"input":5})"},
          {"input[0]", R"({"input":[null]})"},
          {"input[0]", R"({"input":["hi"]})"},
          {"input[0].type", R"({"input":[{"type":"item_reference","id":"x"}]})"},
          {"input[0].role", R"({"input":[{"content":"x"}]})"},
          {"input[0].role", R"({"input":[{"role":"tool","content":"x"}]})"},
          {"input[0].content", R"({"input":[{"role":"user"}]})"},
          {"input[0].content[0].type", R"({"input":[{"role":"user","content":[{"type":"input_image"}]}]})"},
          {"input[0].call_id", R"({"input":[{"type":"function_call","name":"f"}]})"},
          {"input[0].name", R"({"input":[{"type":"function_call","call_id":"1"}]})"},
          {"input[0].call_id", R"({"input":[{"type":"function_call_output","call_id":"1","output":"x"}]})"},
          {"input[1].output",
           R"({"input":[{"type":"function_call","call_id":"1","name":"f"},{"type":"function_call_output","call_id":"1"}]})"},
          {"input[0].content[0].type", R"({"input":[{"type":"reasoning","content":[{"type":"text"}]}]})"},
          {"input[0].content[0]", R"({"input":[{"type":"reasoning","content":[null]}]})"},
          {"instructions", R"({"input":"x","instructions":[]})"},
          {"previous_response_id", R"({"input":"x","previous_response_id":"resp_1"})"},
          {"background", R"({"input":"x","background":true})"},
          {"conversation", R"({"input":"x","conversation":"c"})"},
          {"reasoning", R"({"input":"x","reasoning":"high"})"},
          {"reasoning.effort", R"({"input":"x","reasoning":{"effort":"all"}})"},
          {"max_output_tokens", R"({"input":"x","max_output_tokens":0})"},
          {"metadata", R"({"input":"x","metadata":[]})"},
          {"metadata['a']", R"({"input":"x","metadata":{"a":1}})"},
          {"tools[0].name", R"({"input":"x","tools":[{"type":"function","function":{"name":"f"}}]})"},
          {"tools[0].type", R"({"input":"x","tools":[{"type":"web_search"}]})"},
          {"tool_choice.name", R"({"input":"x","tool_choice":{"type":"function","name":"f"}})"},
          {"text.format.type", R"({"input":"x","text":{"format":{"type":"xml"}}})"},
          {"text.format.name", R"({"input":"x","text":{"format":{"type":"json_schema","schema":{}}}})"},
          {"text", R"({"input":"x","text":"plain"})"},
          {"n", R"({"input":"x","n":2})"},
          {"top_logprobs", R"({"input":"x","top_logprobs":3})"},
          {"temperature", R"({"input":"x","temperature":-1})"},
          {"stream", R"({"input":"x","stream":1})"},
          {"", "nonsense"},
      })
    expect_responses_refused(param, body);
}

}  // namespace
}  // namespace fathom::serve
