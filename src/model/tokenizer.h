// Byte-level BPE tokenizers from Hugging Face's tokenizer.json: GPT-2's kind, o200k_harmony among them. The
// ids are those of the `tokenizers` package; specs/gpt-oss.md section 9 has the rules.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "model/byte_pairs.h"
#include "model/pretokenizer.h"

namespace fathom::model {

// A token of `added_tokens`, such as <|start|>. Two may share an id.
struct AddedToken {
  std::string content;
  TokenId id   = 0;
  bool special = true;  // carries structure, not text
};

// What tokenizer.json says, checked.
struct TokenizerRules {
  std::vector<std::string> bytes;  // of each id; "" where the file has none
  std::vector<AddedToken> added;
  std::array<TokenId, 256> byte_ids{};
  MergeTable merges;
  bool ignore_merges = false;  // a piece that is a token needs no merges to reach it
  std::string pattern;         // of the pre-tokenizer
};

// Reads, and refuses what it does not implement: normalizers, other pre-tokenizers and models, dropout, added
// tokens that swallow spaces, a vocabulary without all 256 bytes. Never silently another tokenization. Errors
// name `path`, the key and the remedy. The post-processor is ignored: no token is ever put in front.
Result<TokenizerRules> parse_tokenizer_rules(std::string_view json, const std::string& path);

// What encode() makes of "<|end|>" in a text.
enum class AddedTokens {
  as_text,     // ordinary tokens: for everything that a user wrote
  recognised,  // the added token, the longest where several match
};

// Immutable; safe to use from many threads.
class Tokenizer {
 public:
  static Result<Tokenizer> load(const std::string& path);
  static Result<Tokenizer> parse(std::string_view json, const std::string& path);

  // Ill-formed UTF-8 is read as U+FFFD, one for each maximal subpart (model/utf8.h), so any bytes may come
  // in. An error when the text has 2^31 bytes or more, or when the file's own pattern exceeds PCRE2's limits.
  Result<std::vector<TokenId>> encode(std::string_view text, AddedTokens added = AddedTokens::as_text) const;

  // Well-formed UTF-8: the tokens' bytes joined, then ill-formed sequences replaced by U+FFFD. Ids that the
  // file does not have are "" (gpt-oss has logits for 1069 of them).
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens = false) const;

  std::string_view bytes(TokenId id) const;  // not always whole characters; "" for an unknown id
  bool is_special(TokenId id) const;
  std::optional<TokenId> added_token(std::string_view content) const;
  int64_t vocab_size() const { return static_cast<int64_t>(rules_.bytes.size()); }  // the largest id + 1

 private:
  Tokenizer(TokenizerRules rules, Pretokenizer pretokenizer);

  // Index into rules_.added of the longest that `text` starts with, or -1.
  int64_t added_at(std::string_view text) const;
  Status encode_text(std::string_view text, PieceMerger& merger, std::vector<TokenId>& ids) const;

  TokenizerRules rules_;  // `added` sorted by content
  Pretokenizer pretokenizer_;
  std::unordered_map<std::string_view, TokenId> pieces_;  // views of rules_.bytes; empty unless ignore_merges
  std::vector<bool> special_;                             // by id
};

// Text of one sequence while its tokens arrive. What add() and finish() returned, joined, is decode() of all
// the ids, and each part is well-formed: a character cut between tokens waits for its rest, at most 3 bytes.
class Detokenizer {
 public:
  // The tokenizer must outlive it.
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens = true)
      : tokenizer_(&tokenizer), skip_special_tokens_(skip_special_tokens) {}

  std::string add(TokenId id);
  std::string finish();  // U+FFFD for what never became whole; then as new

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  std::string held_;
};

}  // namespace fathom::model
