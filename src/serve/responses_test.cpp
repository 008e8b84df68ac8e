#include "serve/responses.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "serve/response_fixture.h"
#include "serve/responses_stream.h"

namespace fathom::serve {
namespace {

using Json = nlohmann::ordered_json;

const ResponseEnvelope kHead{.id = "resp_1", .created = 5, .model = "m"};
const std::string kOutput =
    "<|channel|>analysis<|message|>hm, é<|end|><|start|>assistant"
    "<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant"
    "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{\"a\": 2}<|call|>";

ResponsesRequest request() {
  ResponsesRequest request;
  request.chat.tools       = {{.name = "add", .description = "Adds.", .schema = R"({"type":"object"})"}};
  request.chat.tool_choice = {.kind = ToolChoice::Kind::named, .name = "add"};
  request.instructions     = "Be brief.";
  request.metadata         = R"({"k":"v"})";
  return request;
}

std::vector<Json> streamed(const std::string& output, size_t step,
                           engine::FinishReason reason = engine::FinishReason::stop) {
  return events_of(written(*responses_stream(tiny_tokenizer(), kHead, request()), {output}, harmony_options(),
                           reason, step));
}

Json body(const std::string& output, engine::FinishReason reason = engine::FinishReason::stop) {
  return Json::parse(
      written(*responses_body(tiny_tokenizer(), kHead, request()), {output}, harmony_options(), reason));
}

// Replaces the random ids by numbers in order of appearance.
void number_ids(Json& json, std::map<std::string, int>& seen) {
  for (auto& [key, value] : json.items())
    if (value.is_structured())
      number_ids(value, seen);
    else if ((key == "id" || key == "call_id" || key == "item_id") && value.is_string())
      value = seen.emplace(value.get<std::string>(), seen.size()).first->second;
}

Json numbered(Json json) {
  std::map<std::string, int> seen;
  number_ids(json, seen);
  return json;
}

TEST(Responses, Body) {
  const Json response = body(kOutput);
  EXPECT_EQ(response["object"], "response");
  EXPECT_EQ(response["status"], "completed");
  EXPECT_EQ(response["instructions"], "Be brief.");
  EXPECT_EQ(response["metadata"], (Json{{"k", "v"}}));
  EXPECT_EQ(response["tools"][0]["parameters"], (Json{{"type", "object"}}));
  EXPECT_EQ(response["tool_choice"], (Json{{"type", "function"}, {"name", "add"}}));
  ASSERT_EQ(response["output"].size(), 3u);
  const Json &reasoning = response["output"][0], &message = response["output"][1],
             &call = response["output"][2];
  EXPECT_EQ(reasoning["type"], "reasoning");
  EXPECT_EQ(reasoning["content"][0], (Json{{"type", "reasoning_text"}, {"text", "hm, é"}}));
  EXPECT_EQ(message["type"], "message");
  EXPECT_EQ(message["role"], "assistant");
  EXPECT_EQ(message["content"][0]["type"], "output_text");
  EXPECT_EQ(message["content"][0]["text"], "Let me see.");
  EXPECT_EQ(call["type"], "function_call");
  EXPECT_EQ(call["name"], "add");
  EXPECT_EQ(call["arguments"], "{\"a\": 2}");
  for (const Json& item : response["output"]) EXPECT_EQ(item["status"], "completed");
  EXPECT_EQ(response["usage"]["input_tokens"], 7);
  EXPECT_EQ(response["usage"]["input_tokens_details"]["cached_tokens"], 5);
  EXPECT_EQ(response["usage"]["output_tokens"], ids_of(kOutput).size());
}

TEST(Responses, IncompleteWhereTokensRanOut) {
  const Json response = body(kOutput, engine::FinishReason::length);
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(response["output"][1]["status"], "completed");
  EXPECT_EQ(response["output"][2]["status"], "incomplete");
  EXPECT_EQ(streamed(kOutput, 1, engine::FinishReason::length).back()["type"], "response.incomplete");
  EXPECT_TRUE(body("")["output"].empty());
}

// The events are consistent: each item and part is added once, grows, and is done with the sum of its deltas;
// the last event has the response of the body.
TEST(Responses, TheEventsAddUpToTheBody) {
  for (const size_t step : {1, 3, 1000}) {
    const auto events = streamed(kOutput, step);
    ASSERT_GT(events.size(), 4u);
    EXPECT_EQ(events[0]["type"], "response.created");
    EXPECT_EQ(events[1]["type"], "response.in_progress");
    EXPECT_EQ(events[0]["response"]["status"], "in_progress");
    EXPECT_EQ(events.back()["type"], "response.completed");
    EXPECT_EQ(numbered(events.back()["response"]), numbered(body(kOutput)));

    Json output = Json::array();
    std::string text, id;
    for (size_t i = 0; i < events.size(); ++i) {
      const Json& event = events[i];
      EXPECT_EQ(event["sequence_number"], i);
      const std::string type = event["type"];
      if (type.starts_with("response.c") && !type.starts_with("response.content")) continue;
      if (type == "response.in_progress") continue;
      EXPECT_EQ(event["output_index"], output.size());
      EXPECT_TRUE(!event.contains("item_id") || event["item_id"] == id);
      if (type == "response.output_item.added") {
        text.clear();
        id = event["item"]["id"];
        EXPECT_EQ(event["item"]["status"], "in_progress");
      } else if (type.ends_with(".delta")) {
        text += event["delta"].get<std::string>();
      } else if (type == "response.output_text.done" || type == "response.reasoning_text.done") {
        EXPECT_EQ(event["text"], text);
      } else if (type == "response.function_call_arguments.done") {
        EXPECT_EQ(event["arguments"], text);
      } else if (type == "response.content_part.done") {
        EXPECT_EQ(event["part"]["text"], text);
      } else if (type == "response.output_item.done") {
        output.push_back(event["item"]);
      } else {
        EXPECT_EQ(type, "response.content_part.added");
        EXPECT_EQ(event["part"]["text"], "");
      }
    }
    EXPECT_EQ(output, events.back()["response"]["output"]);
  }
}

TEST(Responses, Failures) {
  const ApiError error{.status = 500, .type = "InternalServerError", .message = "it broke"};
  const auto stream = responses_stream(tiny_tokenizer(), kHead, request());
  std::string all   = stream->begin();
  const std::vector<OutputDelta> pieces{{.begins = true, .text = "so f"}};
  all += stream->add(0, pieces, nullptr, {});
  all += stream->fail(error);
  const Json last = events_of(all).back();
  EXPECT_EQ(last["type"], "response.failed");
  EXPECT_EQ(last["response"]["status"], "failed");
  EXPECT_EQ(last["response"]["error"]["message"], "it broke");
  EXPECT_EQ(last["response"]["output"][0]["status"], "incomplete");
  EXPECT_EQ(Json::parse(responses_body(tiny_tokenizer(), kHead, request())->fail(error))["error"]["code"],
            500);
}

}  // namespace
}  // namespace fathom::serve
