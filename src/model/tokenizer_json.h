// Reads tokenizer.json, as written by Hugging Face's `tokenizers`.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "model/bpe.h"

namespace fathom::model {

// A token of `added_tokens`, such as <|start|>. Two may share an id.
struct AddedToken {
  std::string content;
  TokenId id   = 0;
  bool special = true;  // a control token, not text
};

// The checked contents of tokenizer.json.
struct TokenizerData {
  std::vector<std::string> bytes;  // by id; "" for ids that the file does not have
  std::vector<AddedToken> added;
  std::array<TokenId, 256> byte_ids{};
  MergeTable merges;
  bool ignore_merges = false;  // a piece that is a token is not merged
  std::string pattern;         // of the pre-tokenizer
};

// Refuses everything that would tokenize differently here: normalizers, other pre-tokenizers and models,
// dropout, added tokens that strip spaces, a vocabulary without all 256 bytes. The error names `path`, the
// key and the remedy. The post-processor is ignored: no token is ever prepended.
Result<TokenizerData> parse_tokenizer_json(std::string_view json, const std::string& path);

}  // namespace fathom::model
