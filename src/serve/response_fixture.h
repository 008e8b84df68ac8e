// For tests: runs model output through OutputParser into a ResponseWriter, and parses streams as a client
// does.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/utf8.h"
#include "model/tokenizer.h"
#include "serve/output_parser.h"
#include "serve/response_writer.h"

namespace fathom::serve {

const model::Tokenizer& tiny_tokenizer();  // the bundled model's

inline std::vector<model::TokenId> ids_of(std::string_view text) {
  return tiny_tokenizer().encode(text, model::AddedTokens::recognised).value();
}

inline OutputParser::Options harmony_options() {
  return {.harmony = model::HarmonyTokens::find(tiny_tokenizer()).value(), .tool_calls = true};
}

// The JSON of a stream's events, in order; "[DONE]" is that string. Expects each event to be one `data:`
// line, after an `event:` line with its type where there is one, and to end with an empty line.
inline std::vector<nlohmann::ordered_json> events_of(std::string_view stream) {
  std::vector<nlohmann::ordered_json> events;
  EXPECT_TRUE(is_well_formed(stream));
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    EXPECT_NE(end, std::string_view::npos) << stream;
    if (end == std::string_view::npos) break;
    std::string_view event = stream.substr(0, end), name;
    stream.remove_prefix(end + 2);
    if (event.starts_with("event: ")) {
      name = event.substr(7, event.find('\n') - 7);
      event.remove_prefix(event.find('\n') + 1);
    }
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    EXPECT_EQ(event.find('\n'), std::string_view::npos);
    event.remove_prefix(6);
    events.push_back(event == "[DONE]" ? nlohmann::ordered_json("[DONE]")
                                       : nlohmann::ordered_json::parse(event));
    EXPECT_TRUE(name.empty() || events.back()["type"] == name);
  }
  return events;
}

// Writes the response for `outputs`, one for each choice. The choices take turns, `step` tokens at a time.
// The log-probability of token id is -id.
inline std::string written(ResponseWriter& writer, const std::vector<std::string>& outputs,
                           const OutputParser::Options& options,
                           engine::FinishReason reason = engine::FinishReason::stop, size_t step = 1) {
  struct Choice {
    OutputParser parser;
    std::vector<model::TokenId> ids;
    bool ended = false;
  };
  std::vector<Choice> choices;
  for (const std::string& output : outputs)
    choices.push_back({OutputParser(tiny_tokenizer(), options), ids_of(output)});
  Usage usage{.prompt_tokens = 7, .cached_tokens = 5, .prompt_ms = 2, .predicted_ms = 4};
  std::string all = writer.begin();
  for (size_t at = 0; usage.choices < static_cast<int64_t>(choices.size()); at += step)
    for (size_t i = 0; i < choices.size(); ++i) {
      Choice& choice = choices[i];
      if (choice.ended) continue;
      std::vector<OutputDelta> deltas;
      for (size_t t = at; t < at + step && t < choice.ids.size(); ++t) {
        const model::TokenId id = choice.ids[t];
        choice.parser.add({.id = id, .logprob = -id, .top = {{id, -1.0 * id}, {id + 1, -1.0 * id - 1}}},
                          deltas);
        ++usage.completion_tokens;
      }
      choice.ended = at + step >= choice.ids.size();
      if (choice.ended) {
        choice.parser.finish(deltas);
        ++usage.choices;
        const ChoiceFinish finish{.reason = reason, .stop = choice.parser.stop_reason()};
        all += writer.add(i, deltas, &finish, usage);
      } else if (!deltas.empty()) {
        all += writer.add(i, deltas, nullptr, usage);
      }
    }
  return all + writer.done(usage);
}

}  // namespace fathom::serve
