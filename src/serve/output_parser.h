// Parses the tokens of one answer into reasoning, content and tool calls, as vLLM's reasoning parser and tool
// parser do. For harmony models it reads the channels (model/harmony.h); the answers of other models are all
// content.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/sampler.h"
#include "model/harmony.h"
#include "model/tokenizer.h"
#include "serve/stop_strings.h"

namespace fathom::serve {

// A token whose log-probability the client asked for, and the number of characters of content before its
// text.
struct ContentToken {
  engine::Sampled sampled;
  int64_t offset = 0;
};

// New text of one message. It ends between characters, and never with the beginning of a stop string that may
// follow.
struct OutputDelta {
  enum class Kind { reasoning, content, tool_call, arguments };
  Kind kind   = Kind::content;
  bool begins = false;               // the first delta of a message
  std::string text;                  // of a tool call: the function's whole name
  std::vector<ContentToken> tokens;  // of content: those whose text begins here
};

// How generation stopped: by itself, at a stop token of the client, or at a stop string of the client.
using StopReason = std::variant<std::monostate, model::TokenId, std::string>;

int64_t characters(std::string_view text);  // of well-formed UTF-8

class OutputParser {
 public:
  struct Options {
    std::optional<model::HarmonyTokens> harmony;  // none: all output is content
    // Harmony: the client offered tools. Otherwise a tool call is content.
    bool tool_calls          = false;
    bool skip_special_tokens = true;  // harmony never shows them
    // Not shown, unless keep_stop.
    std::vector<model::TokenId> eos_ids, stop_token_ids;
    std::vector<std::string> stop_strings;  // searched in content only
    bool keep_stop     = false;
    int64_t min_tokens = 0;  // stop strings count after this many tokens
  };

  // The tokenizer must outlive the parser.
  OutputParser(const model::Tokenizer& tokenizer, Options options);

  // Appends to `deltas` the text that may be shown now; extends the last delta where the message is the same.
  // Appends nothing once stopped() is true.
  void add(const engine::Sampled& sampled, std::vector<OutputDelta>& deltas);
  void finish(std::vector<OutputDelta>& deltas);

  // A stop string was met: no more tokens are needed.
  bool stopped() const { return stops_.hit().has_value(); }
  StopReason stop_reason() const;
  int64_t tokens() const { return tokens_; }
  // Includes the header of the message after the reasoning.
  int64_t reasoning_tokens() const { return reasoning_tokens_; }
  int64_t calls() const { return calls_; }

 private:
  std::string begin_message(std::string text, std::vector<OutputDelta>& deltas);
  void route(std::string text, std::vector<OutputDelta>& deltas);
  void append(std::string text, std::vector<OutputDelta>& deltas);
  void append_content(std::string text, std::vector<OutputDelta>& deltas);

  const model::Tokenizer* tokenizer_;
  Options options_;
  std::optional<model::HarmonyParser> harmony_;
  model::Detokenizer detokenizer_;  // of models without harmony
  StopStrings stops_;
  std::optional<model::TokenId> stop_token_;  // the client's stop token, once it was met

  size_t messages_        = 0;  // messages of harmony_ that have begun
  OutputDelta::Kind kind_ = OutputDelta::Kind::content;
  bool begins_            = true;
  int64_t tokens_ = 0, reasoning_tokens_ = 0, calls_ = 0;

  // Characters of content that were decoded, and of those that were shown. A token waits until its first
  // character is shown.
  int64_t decoded_ = 0, shown_ = 0;
  std::vector<ContentToken> waiting_;
  // Tokens without text so far: of a character that is incomplete, or of a possible message header.
  std::vector<engine::Sampled> textless_;
};

}  // namespace fathom::serve
