// Byte-level BPE tokenizers of GPT-2's kind, such as o200k_harmony, from Hugging Face's tokenizer.json.
// Encodes to the same ids as the `tokenizers` package.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "model/bpe.h"
#include "model/pretokenizer.h"
#include "model/tokenizer_json.h"

namespace fathom::model {

// How encode() treats an added token such as "<|end|>" in a text.
enum class AddedTokens {
  as_text,     // as ordinary text: for everything that a user wrote
  recognised,  // as the added token; the longest match wins
};

// Immutable; safe to use from many threads.
class Tokenizer {
 public:
  static Result<Tokenizer> load(const std::string& path);
  static Result<Tokenizer> parse(std::string_view json, const std::string& path);

  // Accepts any bytes: ill-formed UTF-8 is read as U+FFFD, one for each maximal subpart (core/utf8.h). Fails
  // if the text has 2^31 bytes or more, or if the tokenizer's pattern exceeds PCRE2's limits.
  Result<std::vector<TokenId>> encode(std::string_view text, AddedTokens added = AddedTokens::as_text) const;

  // Joins the tokens' bytes and replaces ill-formed UTF-8 by U+FFFD. Ids that the file does not have decode
  // to
  // "" (gpt-oss has logits for 1069 such ids).
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens = false) const;

  std::string_view bytes(TokenId id) const;  // may cut characters; "" for an unknown id
  bool is_special(TokenId id) const;
  std::optional<TokenId> added_token(std::string_view content) const;
  int64_t vocab_size() const { return static_cast<int64_t>(data_.bytes.size()); }  // the largest id + 1

 private:
  Tokenizer(TokenizerData data, Pretokenizer pretokenizer);

  // Index in data_.added of the longest token that `text` starts with, or -1.
  int64_t added_at(std::string_view text) const;
  Status encode_text(std::string_view text, BpeMerger& merger, std::vector<TokenId>& ids) const;

  TokenizerData data_;  // `added` sorted by content
  Pretokenizer pretokenizer_;
  std::unordered_map<std::string_view, TokenId> pieces_;  // views of data_.bytes; empty unless ignore_merges
  std::vector<bool> special_;                             // by id
};

// Decodes one sequence incrementally. The texts returned by add() and finish(), joined, equal decode() of all
// ids, and each is well-formed: bytes of an incomplete character, at most 3, are held back.
class Detokenizer {
 public:
  // The tokenizer must outlive it.
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens = true)
      : tokenizer_(&tokenizer), skip_special_tokens_(skip_special_tokens) {}

  std::string add(TokenId id);
  std::string finish();  // returns U+FFFD for an incomplete character, and resets

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  std::string held_;
};

}  // namespace fathom::model
