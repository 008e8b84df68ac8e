#include "model/tokenizer_json.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <unordered_set>

namespace fathom::model {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxIds = int64_t{1} << 22;  // ids are indices: a typo must not allocate gigabytes

constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Thrown and caught in this file only.
struct TokenizerRefusal {
  std::string key, message;
};

[[noreturn]] void refuse(std::string key, std::string message) {
  throw TokenizerRefusal{std::move(key), std::move(message)};
}

const Json kNull;

const Json& member(const Json& object, const char* key) {
  if (!object.is_object()) return kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : ""; }

bool is_true(const Json& value) { return value.is_boolean() && value.get<bool>(); }

// A JSON value for a message, at most 80 characters.
std::string shown(const Json& value) {
  const std::string text = value.dump(-1, ' ', true);
  return text.size() <= 80 ? text : text.substr(0, 77) + "...";
}

std::optional<TokenId> id_of(const Json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  const auto id = value.get<int64_t>();
  return id < 0 || id >= kMaxIds ? std::nullopt : std::optional(static_cast<TokenId>(id));
}

[[noreturn]] void refuse_id(std::string key, const Json& value) {
  refuse(std::move(key),
         fmt::format("{} is no token id: expected an integer from 0 to {}", shown(value), kMaxIds - 1));
}

void require(bool supported, std::string_view key, const Json& value, const char* remedy) {
  if (!supported) refuse(std::string(key), fmt::format("{} is not supported: {}", shown(value), remedy));
}

// GPT-2's byte-to-character alphabet: printable bytes stand for themselves, the others are U+0100 and up, in
// order.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    bytes_.fill(-1);
    int next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool itself              = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
      bytes_[itself ? byte : next++] = byte;
    }
  }

  // The bytes of a vocabulary entry; empty if it has a character outside the alphabet.
  std::optional<std::string> bytes(std::string_view text) const {
    std::string bytes;
    for (size_t i = 0; i < text.size(); ++i) {
      unsigned character = static_cast<unsigned char>(text[i]);
      if (character >= 0xE0) return std::nullopt;  // three or four bytes; the JSON parser has checked UTF-8
      if (character >= 0xC0) character = (character & 0x1F) << 6 | (text[++i] & 0x3F);
      if (character >= bytes_.size() || bytes_[character] < 0) return std::nullopt;
      bytes += static_cast<char>(bytes_[character]);
    }
    return bytes;
  }

 private:
  std::array<int, 324> bytes_{};  // by character; -1 outside the alphabet
};

void refuse_what_we_lack(const Json& root) {
  const Json& model = member(root, "model");
  if (!model.is_object()) refuse("model", "missing: give a tokenizer.json of Hugging Face's tokenizers");
  const Json& type = member(model, "type");
  require(type.is_null() || type == "BPE", "model.type", type, "only byte-level BPE is");
  require(!is_true(member(model, "byte_fallback")), "model.byte_fallback", true,
          "export the tokenizer as byte-level BPE");
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json& value = member(model, affix);
    require(value.is_null() || value == "", fmt::format("model.{}", affix), value, "set it to null");
  }
  const Json& dropout = member(model, "dropout");
  require(dropout.is_null() || dropout == 0, "model.dropout", dropout, "set it to null for inference");
  const Json& normalizer = member(root, "normalizer");
  require(normalizer.is_null(), "normalizer", normalizer, "set it to null and normalize the text beforehand");
  const Json& decoder = member(root, "decoder");
  require(decoder.is_null() || member(decoder, "type") == "ByteLevel", "decoder", decoder,
          "only ByteLevel is");
}

// The pattern of {"type": "ByteLevel"}, alone or after one {"type": "Split"}.
std::string read_pattern(const Json& root) {
  const char* key   = "pre_tokenizer";
  const Json& whole = member(root, key);
  const Json steps =
      member(whole, "type") == "Sequence" ? member(whole, "pretokenizers") : Json::array({whole});
  require(steps.is_array() && !steps.empty() && steps.size() <= 2, key, whole,
          "expected ByteLevel, alone or after one Split");

  const Json& byte_level = steps.back();
  require(member(byte_level, "type") == "ByteLevel", key, byte_level, "the last step must be ByteLevel");
  require(!is_true(member(byte_level, "add_prefix_space")), key, byte_level, "set add_prefix_space to false");
  const Json& use_regex = member(byte_level, "use_regex");
  const bool own_regex  = use_regex.is_null() || is_true(use_regex);  // true is the default of `tokenizers`
  if (steps.size() == 1) return own_regex ? std::string(kGpt2Pattern) : "(?s).+";

  const Json& split = steps.front();
  const Json& regex = member(member(split, "pattern"), "Regex");
  require(!own_regex, key, byte_level, "set use_regex to false after a Split");
  require(member(split, "type") == "Split" && regex.is_string(), key, split,
          "expected {\"type\": \"Split\", \"pattern\": {\"Regex\": ...}}");
  require(member(split, "behavior") == "Isolated" && !is_true(member(split, "invert")), key, split,
          "behavior must be \"Isolated\" and invert false");
  return regex.get<std::string>();
}

std::vector<AddedToken> read_added(const Json& root) {
  const Json& list = member(root, "added_tokens");
  if (!list.is_null() && !list.is_array()) refuse("added_tokens", "expected a list");
  std::vector<AddedToken> added;
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& entry     = list[i];
    const std::string key = fmt::format("added_tokens[{}]", i);
    for (const char* flag : {"lstrip", "rstrip", "single_word"})
      require(!is_true(member(entry, flag)), key, entry, "set lstrip, rstrip and single_word to false");
    const auto id = id_of(member(entry, "id"));
    if (!id) refuse_id(key + ".id", member(entry, "id"));
    AddedToken token{.content = text_of(member(entry, "content")),
                     .id      = *id,
                     .special = is_true(member(entry, "special"))};
    if (token.content.empty()) refuse(key + ".content", "missing or empty: give the token's text");
    added.push_back(std::move(token));
  }
  return added;
}

using Ids = std::unordered_map<std::string, TokenId>;

// Stores the bytes of every id in `data`. Returns the ids that text can be encoded to, by their bytes.
Ids read_vocab(const Json& model, const ByteAlphabet& alphabet, TokenizerData& data) {
  const Json& vocab = member(model, "vocab");
  if (!vocab.is_object()) refuse("model.vocab", "missing: expected an object of tokens and their ids");
  const auto place = [&](TokenId id, const std::string& bytes) -> std::string& {
    if (static_cast<size_t>(id) >= data.bytes.size()) data.bytes.resize(id + 1);
    std::string& slot = data.bytes[id];
    if (slot.empty()) slot = bytes;
    return slot;
  };
  std::unordered_map<std::string_view, const AddedToken*> added;
  for (const AddedToken& token : data.added) added.emplace(token.content, &token);

  Ids ids;
  for (const auto& [text, value] : vocab.items()) {
    const auto key   = [&text = text] { return fmt::format("model.vocab[{}]", shown(text)); };
    const auto id    = id_of(value);
    const auto bytes = alphabet.bytes(text);
    if (!id) refuse_id(key(), value);
    if (const auto same = added.find(text); same != added.end()) {
      if (same->second->id != *id)
        refuse(key(), fmt::format("{} here and {} in added_tokens: give it one id", *id, same->second->id));
      if (same->second->special || bytes != text) continue;  // an added token is matched by its own text
    }
    if (!bytes || bytes->empty())
      refuse(key(), "not in the byte-level alphabet: export the tokenizer as byte-level BPE");
    if (place(*id, *bytes) != *bytes) refuse(key(), fmt::format("another token has id {}: remove one", *id));
    ids.emplace(*bytes, *id);
  }
  std::unordered_set<TokenId> named;
  for (const AddedToken& token : data.added)
    if (named.insert(token.id).second && place(token.id, token.content) != token.content)
      refuse(fmt::format("added_tokens \"{}\"", token.content),
             fmt::format("id {} is another token's in model.vocab: give it one of its own", token.id));
  return ids;
}

void read_byte_ids(const Ids& ids, TokenizerData& data) {
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = ids.find(std::string(1, static_cast<char>(byte)));
    if (found == ids.end())
      refuse("model.vocab", fmt::format("no token for the byte 0x{:02X}: train with ByteLevel's initial "
                                        "alphabet",
                                        byte));
    data.byte_ids[byte] = found->second;
  }
}

// Reads both spellings: ["a", "b"] and "a b". The alphabet has no space, so a space is a separator.
void read_merges(const Json& model, const ByteAlphabet& alphabet, const Ids& ids, TokenizerData& data) {
  const Json& merges = member(model, "merges");
  if (!merges.is_array()) refuse("model.merges", "missing: expected a list of pairs of tokens");
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Json& pair   = merges[rank];
    const auto refused = [&](const char* why) {
      refuse(fmt::format("model.merges[{}]", rank), fmt::format("{}: {}", shown(pair), why));
    };
    std::string left, right;
    if (pair.is_string()) {
      const std::string text = pair.get<std::string>();
      const size_t space     = text.find(' ');
      if (space == std::string::npos) refused("expected two tokens and a space between them");
      left  = text.substr(0, space);
      right = text.substr(space + 1);
    } else if (pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_string()) {
      left  = pair[0].get<std::string>();
      right = pair[1].get<std::string>();
    } else {
      refused("expected \"a b\" or [\"a\", \"b\"]");
    }
    const auto a = alphabet.bytes(left), b = alphabet.bytes(right);
    if (!a || !b) refused("not in the byte-level alphabet: export the tokenizer as byte-level BPE");
    const auto a_id = ids.find(*a), b_id = ids.find(*b), merged = ids.find(*a + *b);
    if (a_id == ids.end() || b_id == ids.end() || merged == ids.end())
      refused(
          "a token of it, or both joined, are not in model.vocab or are special: take merges and vocab "
          "from one file");
    data.merges.insert(a_id->second, b_id->second,
                       {.rank = static_cast<int32_t>(rank), .merged = merged->second});
  }
}

// Whether brackets nest deeper than in any real tokenizer.json. nlohmann::json recurses over nested values.
bool nests_too_deep(std::string_view json) {
  constexpr int kDeepest = 64;
  int depth              = 0;
  bool in_string         = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string && c == '\\') {
      ++i;
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string && (c == '[' || c == '{')) {
      if (++depth > kDeepest) return true;
    } else if (!in_string && (c == ']' || c == '}')) {
      --depth;
    }
  }
  return false;
}

}  // namespace

Result<TokenizerData> parse_tokenizer_json(std::string_view json, const std::string& path) {
  if (nests_too_deep(json)) return Error{fmt::format("{}: brackets nest too deep: fetch it again", path)};
  const Json root = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object())
    return Error{fmt::format("{}: not a JSON object of {} bytes: fetch the file again", path, json.size())};
  try {
    refuse_what_we_lack(root);
    const Json& model = member(root, "model");
    const ByteAlphabet alphabet;
    TokenizerData data;
    data.pattern       = read_pattern(root);
    data.ignore_merges = is_true(member(model, "ignore_merges"));
    data.added         = read_added(root);
    const Ids ids      = read_vocab(model, alphabet, data);
    read_byte_ids(ids, data);
    read_merges(model, alphabet, ids, data);
    return data;
  } catch (const TokenizerRefusal& refusal) {
    return Error{fmt::format("{}: {}: {}", path, refusal.key, refusal.message)};
  }
}

}  // namespace fathom::model
