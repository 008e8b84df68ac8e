#include "serve/completion.h"

#include <gtest/gtest.h>

#include <string>

#include "serve/completion_stream.h"
#include "serve/response_fixture.h"

namespace fathom::serve {
namespace {

using Json = nlohmann::ordered_json;

CompletionOptions options(std::vector<std::string> echo) {
  return {.envelope = {.id = "cmpl-1", .created = 5, .model = "m"}, .echo = std::move(echo)};
}

TEST(Completion, AStreamSaysWhatABodySays) {
  const std::vector<std::string> outputs = {"one 😀 two", "", "a stop b", "é"};
  const OutputParser::Options text{.stop_strings = {"stop"}};
  for (const bool logprobs : {false, true})
    for (const size_t step : {1, 2, 5, 1000}) {
      auto with          = options({"", "Before: ", "", "é"});
      with.logprobs      = logprobs;
      with.include_usage = true;
      const Json whole   = Json::parse(written(*completion_body(tiny_tokenizer(), with), outputs, text));
      const auto events  = events_of(written(*completion_stream(tiny_tokenizer(), with), outputs, text,
                                             engine::FinishReason::stop, step));
      std::vector<Json> read(outputs.size());
      ASSERT_EQ(events.back(), "[DONE]");
      EXPECT_EQ(events[events.size() - 2]["usage"], whole["usage"]);
      EXPECT_TRUE(events[events.size() - 2]["choices"].empty());
      for (size_t e = 0; e + 2 < events.size(); ++e) {
        EXPECT_EQ(events[e]["object"], "text_completion");
        const Json& choice = events[e]["choices"].at(0);
        Json& mine         = read[choice["index"].get<size_t>()];
        if (mine.is_null()) {
          mine = choice;
          continue;
        }
        EXPECT_TRUE(mine["finish_reason"].is_null());
        mine["text"]          = mine["text"].get<std::string>() + choice["text"].get<std::string>();
        mine["finish_reason"] = choice["finish_reason"];
        mine["stop_reason"]   = choice["stop_reason"];
        if (logprobs)
          for (const auto& [key, list] : choice["logprobs"].items())
            mine["logprobs"][key].insert(mine["logprobs"][key].end(), list.begin(), list.end());
      }
      for (size_t i = 0; i < outputs.size(); ++i) EXPECT_EQ(read[i], whole["choices"][i]) << step;
      EXPECT_EQ(whole["choices"][1]["text"], "Before: ");
      EXPECT_EQ(whole["choices"][2]["text"], "a ");
      EXPECT_EQ(whole["choices"][2]["stop_reason"], "stop");
    }
}

TEST(Completion, LogprobsInFourLists) {
  auto with     = options({"€uro"});
  with.logprobs = true;
  const Json logprobs =
      Json::parse(written(*completion_body(tiny_tokenizer(), with), {"ab é!"}, {}))["choices"][0]["logprobs"];
  const auto ids = ids_of("ab é!");
  ASSERT_EQ(logprobs["tokens"].size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(logprobs["token_logprobs"][i], -ids[i]);
    EXPECT_EQ(logprobs["top_logprobs"][i][logprobs["tokens"][i].get<std::string>()], -ids[i]);
  }
  EXPECT_EQ(logprobs["text_offset"][0], 4);  // after the characters of the echo
  EXPECT_EQ(logprobs["text_offset"].back(), 4 + 4);
}

TEST(Completion, Failures) {
  const auto events = events_of(completion_stream(tiny_tokenizer(), options({""}))->fail({.message = "no"}));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["error"]["message"], "no");
  EXPECT_EQ(events[1], "[DONE]");
}

}  // namespace
}  // namespace fathom::serve
