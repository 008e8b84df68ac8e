// Builds a byte-level BPE tokenizer.json with o200k_harmony's pattern and a given vocabulary, for tests and
// synthetic tokenizers.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fathom::model {

inline constexpr std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// GPT-2's byte-to-character alphabet: ! to ~, U+00A1 to U+00AC and U+00AE to U+00FF stand for themselves; the
// other bytes follow from U+0100 on.
inline std::string byte_level(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const int byte = static_cast<unsigned char>(c);
    int character  = byte;
    if (byte <= 0x20)
      character = 0x100 + byte;
    else if (byte >= 0x7F && byte <= 0xA0)
      character = 0x121 + byte - 0x7F;
    else if (byte == 0xAD)
      character = 0x143;
    if (character < 0x80) {
      text += static_cast<char>(character);
    } else {
      text += static_cast<char>(0xC0 | character >> 6);
      text += static_cast<char>(0x80 | (character & 0x3F));
    }
  }
  return text;
}

using TokenPair = std::pair<std::string, std::string>;  // in bytes

// Byte b has id b. New tokens of the merges follow from 256 on, then the added tokens.
inline nlohmann::json byte_level_tokenizer_json(const std::vector<TokenPair>& merges,
                                                const std::vector<std::string>& specials = {}) {
  using Json = nlohmann::json;
  Json vocab = Json::object(), pairs = Json::array(), added = Json::array();
  for (int byte = 0; byte < 256; ++byte) vocab[byte_level(std::string(1, static_cast<char>(byte)))] = byte;
  for (const auto& [left, right] : merges) {
    const std::string text = byte_level(left + right);
    if (!vocab.contains(text)) vocab[text] = vocab.size();
    pairs.push_back({byte_level(left), byte_level(right)});
  }
  for (const std::string& special : specials)
    added.push_back({{"id", vocab.size() + added.size()},
                     {"content", special},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  const Json split      = {{"type", "Split"},
                           {"pattern", {{"Regex", kO200kPattern}}},
                           {"behavior", "Isolated"},
                           {"invert", false}};
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}}},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", true},
            {"vocab", vocab},
            {"merges", pairs}}}};
}

}  // namespace fathom::model
