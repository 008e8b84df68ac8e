// The tokens of one sequence as text of a reply: what is reasoning, what is content, what is a call of a
// tool.
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

// A token whose log-probability was asked for, and where its text begins: characters of content before it.
struct ShownToken {
  engine::Sampled sampled;
  int64_t offset = 0;
};

// Text that one message of the answer grew by. Whole characters, and never the beginning of a stop string
// that may follow.
struct Piece {
  enum class Kind { reasoning, content, call, arguments };
  Kind kind   = Kind::content;
  bool begins = false;             // a message: what came before belongs to another one
  std::string text;                // of a call: the function's name, and never more than that
  std::vector<ShownToken> tokens;  // of content: those whose text begins here
};

// Why generation stopped: by itself, at one of the client's tokens, at one of the client's strings.
using StopReason = std::variant<std::monostate, model::TokenId, std::string>;

int64_t characters(std::string_view text);  // of well-formed UTF-8

class AnswerText {
 public:
  struct Options {
    std::optional<model::HarmonyTokens> harmony;  // the model's channels are parsed; none: all is content
    bool tool_calls          = false;             // harmony: tools were offered; otherwise a call is content
    bool skip_special_tokens = true;              // unless harmony, which never shows them
    std::vector<model::TokenId> eos_ids, stop_token_ids;  // not shown, unless keep_stop
    std::vector<std::string> stop_strings;                // of content
    bool keep_stop     = false;
    int64_t min_tokens = 0;  // up to which stop strings do not count
  };

  // The tokenizer must outlive it.
  AnswerText(const model::Tokenizer& tokenizer, Options options);

  // Appends to `pieces` what may be shown now, to the last of them where it is the same message. Nothing once
  // stopped() is true.
  void add(const engine::Sampled& sampled, std::vector<Piece>& pieces);
  void finish(std::vector<Piece>& pieces);

  bool stopped() const { return stops_.hit().has_value(); }  // by a string: no more tokens are wanted
  StopReason stop_reason() const;
  int64_t tokens() const { return tokens_; }
  int64_t reasoning_tokens() const { return reasoning_tokens_; }  // up to the header of what follows
  int64_t calls() const { return calls_; }

 private:
  std::string parsed(std::string text, std::vector<Piece>& pieces);
  void place(std::string text, std::vector<Piece>& pieces);
  void show(std::string text, std::vector<Piece>& pieces);
  void show_content(std::string text, std::vector<Piece>& pieces);

  const model::Tokenizer* tokenizer_;
  Options options_;
  std::optional<model::HarmonyParser> parser_;
  model::Detokenizer detokenizer_;  // where there is no parser
  StopStrings stops_;
  std::optional<model::TokenId> stop_token_;  // the client's, that was met

  size_t messages_  = 0;  // of the parser's, seen
  Piece::Kind kind_ = Piece::Kind::content;
  bool begins_      = true;
  int64_t tokens_ = 0, reasoning_tokens_ = 0, calls_ = 0;

  // Characters of content that were made and that were shown; a token waits until its first one is.
  int64_t made_ = 0, shown_ = 0;
  std::vector<ShownToken> waiting_;
  std::vector<engine::Sampled> textless_;  // of a character that is not whole, or of what may be a header
};

}  // namespace fathom::serve
