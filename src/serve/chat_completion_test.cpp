#include "serve/chat_completion.h"

#include <gtest/gtest.h>

#include <string>

#include "serve/chat_completion_stream.h"
#include "serve/response_fixture.h"

namespace fathom::serve {
namespace {

using Json = nlohmann::ordered_json;

const std::string kThought = "<|channel|>analysis<|message|>hm, é<|end|><|start|>assistant",
                  kCall =
                      "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{\"a\": 2}<|call|>",
                  kAnswer = "<|channel|>final<|message|>4 € \"x\"\n<|return|>";

ChatCompletionOptions options(size_t choices = 1) {
  return {.envelope = {.id = "chatcmpl-1", .created = 5, .model = "m"}, .choices = choices};
}

Json body(const std::vector<std::string>& outputs, ChatCompletionOptions with,
          const OutputParser::Options& text, engine::FinishReason reason = engine::FinishReason::stop) {
  return Json::parse(
      written(*chat_completion_body(tiny_tokenizer(), std::move(with)), outputs, text, reason));
}

// The message that a client assembles from a stream's chunks, as the openai package does: texts are joined,
// tool calls by index. Checks the invariants of every chunk.
struct Collected {
  std::vector<Json> choices;  // {message, finish_reason, stop_reason, logprobs}
  Json last;                  // the chunk without choices
};

Collected collected(const std::string& stream, size_t choices) {
  Collected all;
  const auto events = events_of(stream);
  EXPECT_EQ(events.back(), "[DONE]");
  all.choices.resize(choices);
  for (size_t e = 0; e + 1 < events.size(); ++e) {
    const Json& chunk = events[e];
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    EXPECT_EQ(chunk["id"], "chatcmpl-1");
    if (chunk["choices"].empty()) {
      EXPECT_EQ(e + 2, events.size());
      all.last = chunk;
      continue;
    }
    const Json& choice = chunk["choices"].at(0);
    Json& mine         = all.choices.at(choice["index"].get<size_t>());
    const Json& delta  = choice["delta"];
    if (mine.is_null()) {
      EXPECT_EQ(delta, (Json{{"role", "assistant"}, {"content", ""}}));
      mine = {{"message", delta}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
      continue;
    }
    EXPECT_TRUE(mine["finish_reason"].is_null()) << "nothing comes after the end";
    Json& message = mine["message"];
    for (const char* key : {"content", "reasoning", "reasoning_content"})
      if (delta.contains(key)) message[key] = message.value(key, "") + delta[key].get<std::string>();
    for (const Json& part : delta.value("tool_calls", Json::array())) {
      Json& calls        = message["tool_calls"];
      const size_t index = part["index"];
      if (index == calls.size()) {
        calls.push_back({{"id", part["id"]}, {"type", part["type"]}, {"function", part["function"]}});
      } else {
        EXPECT_EQ(index + 1, calls.size());
        EXPECT_FALSE(part.contains("id"));
        std::string& arguments = calls[index]["function"]["arguments"].get_ref<std::string&>();
        arguments += part["function"]["arguments"].get<std::string>();
      }
    }
    if (!choice["logprobs"].is_null()) {
      if (mine["logprobs"].is_null()) mine["logprobs"] = {{"content", Json::array()}};
      for (const Json& entry : choice["logprobs"]["content"]) mine["logprobs"]["content"].push_back(entry);
    }
    mine["finish_reason"] = choice["finish_reason"];
    if (choice.contains("stop_reason")) mine["stop_reason"] = choice["stop_reason"];
  }
  return all;
}

// Removes random ids, and null content, which a stream cannot express.
Json comparable(Json choice) {
  choice.erase("index");
  if (choice["message"]["content"].is_null()) choice["message"]["content"] = "";
  if (choice["message"].contains("tool_calls"))
    for (Json& call : choice["message"]["tool_calls"]) {
      EXPECT_TRUE(call["id"].get<std::string>().starts_with("call_"));
      call.erase("id");
    }
  return Json::parse(nlohmann::json(choice).dump());  // sorts the keys
}

TEST(ChatCompletion, Body) {
  const Json reply  = body({kThought + kAnswer}, options(), harmony_options());
  const Json choice = reply["choices"].at(0);
  EXPECT_EQ(reply["object"], "chat.completion");
  EXPECT_EQ(choice["message"], (Json{{"role", "assistant"},
                                     {"content", "4 € \"x\"\n"},
                                     {"reasoning", "hm, é"},
                                     {"reasoning_content", "hm, é"}}));
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_TRUE(choice["stop_reason"].is_null());
  EXPECT_TRUE(choice["logprobs"].is_null());
  const Json usage = reply["usage"];
  EXPECT_EQ(usage["prompt_tokens"], 7);
  EXPECT_EQ(usage["completion_tokens"], ids_of(kThought + kAnswer).size());
  EXPECT_EQ(usage["total_tokens"], 7 + ids_of(kThought + kAnswer).size());
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 5);
  EXPECT_EQ(reply["timings"]["prompt_n"], 2);
  EXPECT_EQ(reply["timings"]["prompt_per_second"], 1000);
}

TEST(ChatCompletion, Calls) {
  const Json choice = body({kThought + kCall}, options(), harmony_options())["choices"].at(0);
  EXPECT_TRUE(choice["message"]["content"].is_null());
  const Json calls = choice["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0]["type"], "function");
  EXPECT_EQ(calls[0]["function"], (Json{{"name", "add"}, {"arguments", "{\"a\": 2}"}}));
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  const Json cut = body({kThought + kCall}, options(), harmony_options(), engine::FinishReason::length);
  EXPECT_EQ(cut["choices"][0]["finish_reason"], "length");
}

TEST(ChatCompletion, StopReasons) {
  OutputParser::Options text = harmony_options();
  text.stop_strings          = {"€"};
  const Json choice          = body({kAnswer}, options(), text)["choices"].at(0);
  EXPECT_EQ(choice["message"]["content"], "4 ");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["stop_reason"], "€");
}

TEST(ChatCompletion, AStreamSaysWhatABodySays) {
  const std::vector<std::string> outputs = {
      kThought + kAnswer,
      kThought + kCall,
      kThought + kCall + "<|start|>assistant" + kCall,
      "<|channel|>commentary<|message|>First.<|end|><|start|>assistant" + kAnswer,
      "no channel at all 😀",
      "",
      kThought};
  OutputParser::Options text = harmony_options();
  text.stop_strings          = {"\n\n", "channel x"};
  for (const bool logprobs : {false, true})
    for (const bool reasoning : {false, true})
      for (const size_t step : {1, 2, 7, 1000}) {
        ChatCompletionOptions with = options(outputs.size());
        with.logprobs              = logprobs;
        with.include_reasoning     = reasoning;
        with.include_usage         = true;
        const Json whole           = body(outputs, with, text);
        const auto stream          = written(*chat_completion_stream(tiny_tokenizer(), with), outputs, text,
                                             engine::FinishReason::stop, step);
        const Collected read       = collected(stream, outputs.size());
        for (size_t i = 0; i < outputs.size(); ++i) {
          Json expected = comparable(whole["choices"][i]), got = comparable(read.choices[i]);
          // A stream without content has no log-probabilities.
          if (got["logprobs"].is_null() && logprobs) got["logprobs"] = {{"content", Json::array()}};
          EXPECT_EQ(got, expected) << outputs[i];
        }
        EXPECT_EQ(read.last["usage"], whole["usage"]);
        EXPECT_EQ(read.last["timings"], whole["timings"]);
      }
}

TEST(ChatCompletion, LogprobsAreOfContent) {
  ChatCompletionOptions with = options();
  with.logprobs              = true;
  const Json entries         = body({kThought + "<|channel|>final<|message|>a😀"}, with, harmony_options(),
                                    engine::FinishReason::length)["choices"][0]["logprobs"]["content"];
  const auto ids             = ids_of("a😀");
  ASSERT_EQ(entries.size(), ids.size());
  std::string bytes;
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(entries[i]["logprob"], -ids[i]);
    ASSERT_EQ(entries[i]["top_logprobs"].size(), 2u);
    EXPECT_EQ(entries[i]["top_logprobs"][0]["logprob"], -ids[i]);
    for (const Json& byte : entries[i]["bytes"]) bytes += static_cast<char>(byte.get<int>());
  }
  EXPECT_EQ(bytes, "a😀");
}

TEST(ChatCompletion, UsageInEveryChunkWhereAskedFor) {
  ChatCompletionOptions with = options();
  const auto last_but_one    = [](const std::vector<Json>& events) { return events[events.size() - 2]; };
  const auto plain =
      events_of(written(*chat_completion_stream(tiny_tokenizer(), with), {kAnswer}, harmony_options()));
  EXPECT_TRUE(last_but_one(plain).contains("timings"));
  for (const Json& event : plain) EXPECT_FALSE(event.is_object() && event.contains("usage"));
  with.continuous_usage_stats = true;
  const auto events =
      events_of(written(*chat_completion_stream(tiny_tokenizer(), with), {kAnswer}, harmony_options()));
  int64_t before = 0;
  for (size_t i = 1; i + 1 < events.size(); ++i) {
    EXPECT_GT(events[i]["usage"]["completion_tokens"], before);
    before = events[i]["usage"]["completion_tokens"];
  }
  EXPECT_EQ(before, static_cast<int64_t>(ids_of(kAnswer).size()));
}

TEST(ChatCompletion, Failures) {
  const ApiError error{.status = 500, .type = "InternalServerError", .message = "bad \xff byte"};
  const auto events = events_of(chat_completion_stream(tiny_tokenizer(), options())->fail(error));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["error"]["message"], "bad \xEF\xBF\xBD byte");
  EXPECT_EQ(events[0]["error"]["code"], 500);
  EXPECT_TRUE(events[0]["error"]["param"].is_null());
  EXPECT_EQ(events[1], "[DONE]");
  EXPECT_EQ(Json::parse(chat_completion_body(tiny_tokenizer(), options())->fail(error)), events[0]);
}

}  // namespace
}  // namespace fathom::serve
