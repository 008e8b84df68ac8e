// gpt-oss's conversation format (specs/gpt-oss.md section 10, after openai/harmony): messages to token ids,
// and the model's token ids back to messages.
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
  std::string role;          // "system", "developer", "user", "assistant"; a tool's name for what it returned
  std::string recipient;     // "functions.NAME" of a call, "assistant" of a tool's answer; "" to all
  std::string channel;       // "analysis", "commentary", "final"; "" of who has none
  std::string content_type;  // "json" where output is constrained to it
  std::string content;
};

// The ids of the control tokens.
struct HarmonyTokens {
  TokenId start = 0, end = 0, message = 0, channel = 0, constrain = 0, return_ = 0, call = 0, endoftext = 0;

  static Result<HarmonyTokens> find(const Tokenizer& tokenizer);  // an error names the token that is missing
};

// Content of the system message. `current_date` is "2025-06-28" or "", `reasoning_effort` low, medium or
// high.
std::string harmony_system_text(std::string_view reasoning_effort, std::string_view current_date,
                                bool has_functions);

// The prompt for the next assistant message: it ends with <|start|>assistant. When the conversation's last
// assistant message is a final one, analysis before the first final message is left out. Control tokens come
// from the format only: those spelt out in a message's texts become ordinary tokens.
Result<std::vector<TokenId>> render_harmony(const Tokenizer& tokenizer, const HarmonyTokens& tokens,
                                            std::span<const HarmonyMessage> messages);

// The messages of what the model generates after such a prompt, while it comes. Nothing is an error: a
// recipient may stand anywhere in a header, text without a header or in an unknown channel is final content,
// missing
// <|start|> and <|end|> are assumed, and tokens after a stop are read on.
class HarmonyParser {
 public:
  // The tokenizer must outlive it.
  HarmonyParser(const Tokenizer& tokenizer, const HarmonyTokens& tokens);

  // Text that the last of messages() grew by; "" for structure and for a character that is not whole yet.
  std::string add(TokenId id);
  std::string finish();  // at the end of generation, by a stop or by length

  // A header is one of these once it is whole, so that content can be routed as it streams.
  const std::vector<HarmonyMessage>& messages() const { return messages_; }

 private:
  enum class State { expect_start, header, content };
  enum Section { kRole, kChannel, kConstrain, kSections };  // of a header, by the control token before it

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
  std::string implied_role_;  // of this header, from the prompt: not something the model wrote
  int64_t header_tokens_ = 0;
  std::vector<HarmonyMessage> messages_;
};

}  // namespace fathom::model
