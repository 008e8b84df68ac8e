// A tokenizer for fuzz targets: 256 bytes, a few merges, harmony's control tokens.
#pragma once

#include <nlohmann/json.hpp>

#include "model/byte_level_tokenizer.h"
#include "model/tokenizer.h"

inline nlohmann::json synthetic_json() {
  return fathom::model::byte_level_tokenizer_json(
      {{"a", "n"},
       {"an", "a"},
       {"f", "i"},
       {"fi", "n"},
       {" ", "t"},
       {"\xC3", "\xA9"},
       {"\xF0", "\x9F"},
       {"\xF0\x9F", "\x98"},
       {"1", "2"}},
      {"<|endoftext|>", "<|return|>", "<|constrain|>", "<|channel|>", "<|start|>", "<|end|>", "<|message|>",
       "<|call|>"});
}

inline const fathom::model::Tokenizer& synthetic() {
  static const auto kTokenizer =
      fathom::model::Tokenizer::parse(synthetic_json().dump(), "synthetic.json").value();
  return kTokenizer;
}
