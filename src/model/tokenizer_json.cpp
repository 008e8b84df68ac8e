#include "model/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

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

// The two long lists of a BPE model, in the order of the file. They are not in the DOM, which would make an
// object of each of half a million merges: three quarters of the time of reading a file of 28 MB.
struct ModelLists {
  // Two tokens of `text`, the second behind the first.
  struct MergeText {
    size_t begin  = 0;
    uint32_t left = 0, right = 0;  // bytes
  };
  std::vector<std::pair<std::string, Json>> vocab;  // texts and what should be their ids
  std::string text;
  std::vector<MergeText> merges;
  std::vector<std::pair<size_t, std::string>> no_merges;  // elements that are no pair of texts, as shown
};

// Builds a DOM from nlohmann's SAX events, but appends the elements of model.vocab and model.merges to
// ModelLists and leaves the two empty.
class TokenizerReader {
 public:
  Json root;
  ModelLists lists;
  bool too_deep = false;

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(Json::number_integer_t value) { return add(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return add(value); }
  bool number_float(Json::number_float_t value, const std::string&) { return add(value); }
  bool string(std::string& value) {
    if (open_.empty() || open_.back().in != In::pair) return add(std::move(value));
    if (pair_.elements < 2) {
      pair_.size[pair_.elements] = static_cast<uint32_t>(value.size());
      lists.text += value;
    }
    ++pair_.elements;
    return true;
  }
  bool binary(Json::binary_t&) { return false; }  // not in JSON
  bool start_object(size_t) { return open(Json::object(), false); }
  bool start_array(size_t) {
    const bool pair = !open_.empty() && open_.back().in == In::merges;
    return open(pair ? Json() : Json::array(), pair);
  }
  bool key(std::string& name) {
    open_.back().key = std::move(name);
    return true;
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) { return false; }

 private:
  enum class In { other, vocab, merges, pair };  // pair: a list that is an element of merges
  struct Open {
    Json value;
    std::string key;  // of the member to come
    In in = In::other;
  };
  struct Pair {
    size_t begin     = 0;  // of its two texts in lists.text
    uint32_t size[2] = {0, 0};
    int elements     = 0;
  };

  bool open(Json value, bool pair) {
    constexpr size_t kDeepest = 64;  // deeper than any real file: nlohmann::json recurses to print a value
    if (open_.size() == kDeepest) return too_deep = true, false;
    In in = In::other;
    if (pair) {
      in    = In::pair;
      pair_ = {.begin = lists.text.size()};
    } else if (open_.size() == 2 && open_[0].key == "model") {
      if (value.is_object() && open_[1].key == "vocab") {
        in = In::vocab;
        lists.vocab.clear();
      } else if (value.is_array() && open_[1].key == "merges") {
        in = In::merges;
        lists.merges.clear();
        lists.no_merges.clear();
      }
    }
    open_.push_back({std::move(value), {}, in});
    return true;
  }

  bool close() {
    const In in = open_.back().in;
    Json value  = std::move(open_.back().value);
    open_.pop_back();
    if (in != In::pair) return add(std::move(value));
    const bool good = pair_.elements == 2;
    add_merge(pair_.begin, good ? pair_.size[0] : 0, pair_.size[1], "a list");
    return true;
  }

  bool add(Json value) {
    if (open_.empty()) {
      root = std::move(value);
      return true;
    }
    Open& parent = open_.back();
    switch (parent.in) {
      case In::vocab:
        lists.vocab.emplace_back(std::move(parent.key), std::move(value));
        break;
      case In::merges:
        add_merge(value);
        break;
      case In::pair:
        pair_.elements = 3;  // no pair of texts, whatever follows
        break;
      case In::other:
        if (parent.value.is_object())
          parent.value[std::move(parent.key)] = std::move(value);
        else
          parent.value.push_back(std::move(value));
    }
    return true;
  }

  // The spelling "a b". The alphabet has no space, so a space is a separator.
  void add_merge(const Json& pair) {
    const std::string both = text_of(pair);
    const size_t begin = lists.text.size(), space = std::min(both.find(' '), both.size());
    lists.text.append(both, 0, space).append(both, std::min(space + 1, both.size()));
    const size_t right = lists.text.size() - begin - space;
    add_merge(begin, right == 0 ? 0 : space, right, shown(pair));
  }

  void add_merge(size_t begin, size_t left, size_t right, std::string_view as_shown) {
    if (left == 0 || right == 0) lists.no_merges.emplace_back(lists.merges.size(), as_shown);
    lists.merges.push_back({begin, static_cast<uint32_t>(left), static_cast<uint32_t>(right)});
  }

  std::vector<Open> open_;
  Pair pair_;
};

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

// IdsByText by the spelling of their tokens: open addressing, at most half full. It is asked three times for
// each merge, and most of that is waiting for memory: a slot is one cache line, a node of std::unordered_map
// three.
class IdsByText {
 public:
  explicit IdsByText(size_t size) : slots_(std::bit_ceil(2 * size + 2)) {}

  // False if the text is there. The text must stay where it is.
  bool insert(std::string_view text, TokenId id) {
    Slot& slot = slots_[place(text)];
    if (slot.id >= 0) return false;
    slot = {text.data(), static_cast<uint32_t>(text.size()), id};
    return true;
  }
  std::optional<TokenId> find(std::string_view text) const {
    const Slot& slot = slots_[place(text)];
    return slot.id < 0 ? std::nullopt : std::optional(slot.id);
  }

 private:
  struct Slot {
    const char* text = nullptr;
    uint32_t size    = 0;
    TokenId id       = -1;  // none: empty
  };
  // The slot that has the text, or the empty one where it would go.
  size_t place(std::string_view text) const {
    size_t at = std::hash<std::string_view>()(text) & (slots_.size() - 1);
    while (slots_[at].id >= 0 && std::string_view(slots_[at].text, slots_[at].size) != text)
      at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  std::vector<Slot> slots_;
};

// Stores the bytes of every id in `data`, and the ids of single bytes. Returns the ids that text can be
// encoded to, by their spelling in the file.
IdsByText read_vocab(const Json& model, const ModelLists& lists, const ByteAlphabet& alphabet,
                     TokenizerData& data) {
  if (!member(model, "vocab").is_object())
    refuse("model.vocab", "missing: expected an object of tokens and their ids");
  const auto place = [&](TokenId id, const std::string& bytes) -> std::string& {
    if (static_cast<size_t>(id) >= data.bytes.size()) data.bytes.resize(id + 1);
    std::string& slot = data.bytes[id];
    if (slot.empty()) slot = bytes;
    return slot;
  };
  std::unordered_map<std::string_view, const AddedToken*> added;
  for (const AddedToken& token : data.added) added.emplace(token.content, &token);

  IdsByText ids(lists.vocab.size());
  data.byte_ids.fill(-1);
  for (const auto& [text, value] : lists.vocab) {
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
    if (!ids.insert(text, *id)) refuse(key(), "the token is there twice: remove one");
    if (bytes->size() == 1) data.byte_ids[static_cast<unsigned char>(bytes->front())] = *id;
  }
  for (int byte = 0; byte < 256; ++byte)
    if (data.byte_ids[byte] < 0)
      refuse("model.vocab", fmt::format("no token for the byte 0x{:02X}: train with ByteLevel's initial "
                                        "alphabet",
                                        byte));
  std::unordered_set<TokenId> named;
  for (const AddedToken& token : data.added)
    if (named.insert(token.id).second && place(token.id, token.content) != token.content)
      refuse(fmt::format("added_tokens \"{}\"", token.content),
             fmt::format("id {} is another token's in model.vocab: give it one of its own", token.id));
  return ids;
}

void read_merges(const Json& model, const ModelLists& lists, const IdsByText& ids, TokenizerData& data) {
  if (!member(model, "merges").is_array())
    refuse("model.merges", "missing: expected a list of pairs of tokens");
  const auto refuse_at = [](size_t rank, const std::string& pair, const char* why) {
    refuse(fmt::format("model.merges[{}]", rank), fmt::format("{}: {}", pair, why));
  };
  if (!lists.no_merges.empty())
    refuse_at(lists.no_merges.front().first, lists.no_merges.front().second,
              "expected two tokens, \"a b\" or [\"a\", \"b\"]");
  data.merges.reserve(lists.merges.size());
  for (size_t rank = 0; rank < lists.merges.size(); ++rank) {
    const ModelLists::MergeText& pair = lists.merges[rank];
    const std::string_view both = std::string_view(lists.text).substr(pair.begin, pair.left + pair.right);
    const std::string_view left = both.substr(0, pair.left), right = both.substr(pair.left);
    const auto left_id = ids.find(left), right_id = ids.find(right), merged = ids.find(both);
    if (!left_id || !right_id || !merged)
      refuse_at(rank, shown(fmt::format("{} {}", left, right)),
                "a token of it, or both joined, are not in model.vocab or are special: take merges and vocab "
                "from one file");
    data.merges.insert(*left_id, *right_id, {.rank = static_cast<int32_t>(rank), .merged = *merged});
  }
}

}  // namespace

Result<TokenizerData> parse_tokenizer_json(std::string_view json, const std::string& path) {
  TokenizerReader reader;
  const bool read = Json::sax_parse(json.begin(), json.end(), &reader);
  if (reader.too_deep) return Error{fmt::format("{}: brackets nest too deep: fetch it again", path)};
  if (!read || !reader.root.is_object())
    return Error{fmt::format("{}: not a JSON object of {} bytes: fetch the file again", path, json.size())};
  try {
    refuse_what_we_lack(reader.root);
    const Json& model = member(reader.root, "model");
    TokenizerData data;
    data.pattern        = read_pattern(reader.root);
    data.ignore_merges  = is_true(member(model, "ignore_merges"));
    data.added          = read_added(reader.root);
    const IdsByText ids = read_vocab(model, reader.lists, ByteAlphabet(), data);
    read_merges(model, reader.lists, ids, data);
    return data;
  } catch (const TokenizerRefusal& refusal) {
    return Error{fmt::format("{}: {}: {}", path, refusal.key, refusal.message)};
  }
}

}  // namespace fathom::model
