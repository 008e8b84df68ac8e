// Harmony, the conversation format of gpt-oss (github.com/openai/harmony): renders messages to token ids and
// parses the model's token ids into messages.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "model/tokenizer.h"

namespace fathom::model {

struct HarmonyMessage {
  std::string role;          // "system", "developer", "user", "assistant", or a tool's name for its result
  std::string recipient;     // "functions.NAME" for a call, "assistant" for a tool's result; "" for none
  std::string channel;       // "analysis", "commentary", "final"; "" for none
  std::string content_type;  // "json" where output is constrained to it
  std::string content;
};

// The ids of the control tokens.
struct HarmonyTokens {
  TokenId start = 0, end = 0, message = 0, channel = 0, constrain = 0, return_ = 0, call = 0, endoftext = 0;

  static Result<HarmonyTokens> find(const Tokenizer& tokenizer);  // the error names the missing token
};

// Content of the system message. `current_date` is like "2025-06-28" or ""; `reasoning_effort` is low, medium
// or high.
std::string harmony_system_text(std::string_view reasoning_effort, std::string_view current_date,
                                bool has_functions);

// Renders the prompt for the next assistant message, which ends with <|start|>assistant. If the last
// assistant message is a final one, analysis messages before the first final one are left out. Control tokens
// spelt out in a message's text become ordinary tokens.
Result<std::vector<TokenId>> render_harmony(const Tokenizer& tokenizer, const HarmonyTokens& tokens,
                                            std::span<const HarmonyMessage> messages);

// Parses the model's output after such a prompt as it streams. No input is an error: a recipient may be
// anywhere in a header, text without a header or in an unknown channel is final content, missing <|start|>
// and
// <|end|> are assumed, and tokens after a stop token are parsed too.
class HarmonyParser {
 public:
  // The tokenizer must outlive it.
  HarmonyParser(const Tokenizer& tokenizer, const HarmonyTokens& tokens);

  // Returns the text appended to the last of messages(); "" for control tokens and incomplete characters.
  std::string add(TokenId id);
  std::string finish();  // call it at the end of generation

  // A message is added when its header is complete, so that content can be routed as it streams.
  const std::vector<HarmonyMessage>& messages() const { return messages_; }

 private:
  enum class State { expect_start, header, content };
  enum Section {
    kRole,
    kChannel,
    kConstrain,
    kSections
  };  // of a header, named by the control token before it

  void begin_header(std::string role);
  void begin_content();
  std::string header_as_content();
  std::string end_content();

  const Tokenizer* tokenizer_;
  HarmonyTokens tokens_;
  Detokenizer detokenizer_;
  State state_ = State::header;
  std::array<std::string, kSections> header_;  // bytes
  Section section_ = kRole;
  std::string implied_role_;  // the role given by the prompt or assumed, not written by the model
  int64_t header_tokens_ = 0;
  std::vector<HarmonyMessage> messages_;
};

}  // namespace fathom::model
