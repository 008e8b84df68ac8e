#include "model/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "core/utf8.h"
#include "model/byte_level_tokenizer.h"

namespace fathom::model {
namespace {

using Json = nlohmann::json;
using Ids  = std::vector<TokenId>;

// Ids: 256 "he", 257 "ll", 258 "hell", 259 "hello", 260 " w", 261 "el", 262 the first two bytes of the euro
// sign, 263 all three, 264 and up the special tokens.
Json greeting() {
  return byte_level_tokenizer_json({{"h", "e"},
                                    {"l", "l"},
                                    {"he", "ll"},
                                    {"hell", "o"},
                                    {" ", "w"},
                                    {"e", "l"},
                                    {"\xE2", "\x82"},
                                    {"\xE2\x82", "\xAC"}},
                                   {"<|start|>", "<|end|>", "<|end|>>"});
}

Tokenizer tokenizer_of(const Json& json) {
  auto tokenizer = Tokenizer::parse(json.dump(), "test.json");
  if (!tokenizer) throw std::runtime_error(tokenizer.error().message);
  return *std::move(tokenizer);
}

Ids encoded(const Tokenizer& tokenizer, std::string_view text, AddedTokens added = AddedTokens::as_text) {
  const auto ids = tokenizer.encode(text, added);
  EXPECT_TRUE(ids) << ids.error().message;
  return ids.value_or({});
}

std::string error_of(const Json& json) {
  const auto tokenizer = Tokenizer::parse(json.dump(), "folder/test.json");
  return tokenizer ? "" : tokenizer.error().message;
}

Ids byte_ids(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()),
          reinterpret_cast<const uint8_t*>(text.data()) + text.size()};
}

TEST(Tokenizer, MergesInOrderOfRank) {
  const Tokenizer tokenizer = tokenizer_of(greeting());
  EXPECT_EQ(encoded(tokenizer, ""), Ids{});
  EXPECT_EQ(encoded(tokenizer, "hello"), Ids{259});
  EXPECT_EQ(encoded(tokenizer, "hellx"), (Ids{258, 'x'}));
  EXPECT_EQ(encoded(tokenizer, "xelly"), (Ids{'x', 'e', 257, 'y'}));  // "ll" precedes "el"
  EXPECT_EQ(encoded(tokenizer, "hello world"), (Ids{259, 260, 'o', 'r', 'l', 'd'}));
  EXPECT_EQ(encoded(tokenizer, "\xE2\x82\xAC"), Ids{263});
  EXPECT_EQ(tokenizer.vocab_size(), 267);
}

// Merges of "ello" cannot yield "el" + "lo", because "ll" merges first. As a token of its own it is found
// only with ignore_merges.
TEST(Tokenizer, IgnoreMergesTakesWholePieces) {
  Json json                      = greeting();
  json["model"]["vocab"]["ello"] = 300;
  EXPECT_EQ(encoded(tokenizer_of(json), "ello"), Ids{300});
  json["model"]["ignore_merges"] = false;
  EXPECT_EQ(encoded(tokenizer_of(json), "ello"), (Ids{'e', 257, 'o'}));
}

TEST(Tokenizer, BothSpellingsOfMerges) {
  Json json = greeting();
  for (Json& pair : json["model"]["merges"])
    pair = pair[0].get<std::string>() + " " + pair[1].get<std::string>();
  const Tokenizer a = tokenizer_of(greeting()), b = tokenizer_of(json);
  for (const char* text : {"hello world", "\xE2\x82\xAC", "shell  hell"})
    EXPECT_EQ(encoded(a, text), encoded(b, text)) << text;
}

TEST(Tokenizer, AddedTokensOnlyWhenAsked) {
  const Tokenizer tokenizer = tokenizer_of(greeting());
  const std::string text    = "<|start|>hello<|end|><|end|>>";
  EXPECT_EQ(encoded(tokenizer, text, AddedTokens::recognised), (Ids{264, 259, 265, 266}));  // longest match
  const Ids plain = encoded(tokenizer, text);
  for (const TokenId id : plain) EXPECT_LT(id, 264);
  EXPECT_EQ(tokenizer.decode(plain), text);
  EXPECT_EQ(encoded(tokenizer, "<|star<|end|", AddedTokens::recognised), encoded(tokenizer, "<|star<|end|"));

  EXPECT_EQ(tokenizer.added_token("<|end|>"), 265);
  for (const char* name : {"", "<|end|", "<|end|>>>", "hello"})
    EXPECT_EQ(tokenizer.added_token(name), std::nullopt) << name;
  EXPECT_TRUE(tokenizer.is_special(264));
  for (const TokenId id : {-1, 0, 263, 267}) EXPECT_FALSE(tokenizer.is_special(id)) << id;
  EXPECT_EQ(tokenizer.decode(Ids{264, 259, 265}), "<|start|>hello<|end|>");
  EXPECT_EQ(tokenizer.decode(Ids{264, 259, 265}, /*skip_special_tokens=*/true), "hello");
}

// A special token that is a whole piece, or that merges could yield, must not be encoded from a user's text.
TEST(Tokenizer, TextNeverBecomesASpecialToken) {
  Json json                      = byte_level_tokenizer_json({}, {"stop"});
  json["model"]["vocab"]["stop"] = 256;
  const Tokenizer tokenizer      = tokenizer_of(json);
  EXPECT_EQ(encoded(tokenizer, "stop"), (Ids{'s', 't', 'o', 'p'}));
  EXPECT_EQ(encoded(tokenizer, "stop", AddedTokens::recognised), Ids{256});
  json["model"]["vocab"]["st"] = 257;
  json["model"]["vocab"]["op"] = 258;
  json["model"]["merges"]      = {"s t", "o p", "st op"};
  EXPECT_NE(error_of(json).find("model.merges[2]"), std::string::npos) << error_of(json);
}

TEST(Tokenizer, EveryByteHasAToken) {
  const Tokenizer tokenizer = tokenizer_of(greeting());
  for (int byte = 0; byte < 256; ++byte)
    EXPECT_EQ(tokenizer.bytes(byte), std::string(1, static_cast<char>(byte))) << byte;
  // Round trip of characters spread over U+0000 to U+10FFFF.
  for (uint32_t c = 1; c < 0x110000; c += 1 + c / 64) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    if (c < 0x80)
      text = {char(c)};
    else if (c < 0x800)
      text = {char(0xC0 | c >> 6), char(0x80 | (c & 63))};
    else if (c < 0x10000)
      text = {char(0xE0 | c >> 12), char(0x80 | (c >> 6 & 63)), char(0x80 | (c & 63))};
    else
      text = {char(0xF0 | c >> 18), char(0x80 | (c >> 12 & 63)), char(0x80 | (c >> 6 & 63)),
              char(0x80 | (c & 63))};
    const Ids ids = encoded(tokenizer, text);
    if (text[0] != '\xE2') {
      EXPECT_EQ(ids, byte_ids(text)) << c;
    }
    EXPECT_EQ(tokenizer.decode(ids), text) << c;
  }
  EXPECT_EQ(encoded(tokenizer, std::string_view("a\0b", 3)), (Ids{'a', 0, 'b'}));
}

TEST(Tokenizer, IllFormedTextIsReadAsReplacements) {
  const Tokenizer tokenizer = tokenizer_of(greeting());
  for (const std::string_view text : {"\xFF", "a\xE2\x82", "\xF0\x9F\x98z", "\xED\xA0\x80"})
    for (const AddedTokens added : {AddedTokens::as_text, AddedTokens::recognised})
      EXPECT_EQ(encoded(tokenizer, text, added), encoded(tokenizer, well_formed(text), added));
}

TEST(Tokenizer, UnknownIdsAreNoText) {
  const Tokenizer tokenizer = tokenizer_of(greeting());
  EXPECT_EQ(tokenizer.decode(Ids{-1, 'a', 267, 1'000'000, 'b', std::numeric_limits<TokenId>::min()}), "ab");
}

TEST(Tokenizer, AMegabyteOfOneLetter) {
  std::vector<TokenPair> merges;
  for (int size = 1; size <= 64; size *= 2)
    merges.push_back({std::string(size, 'a'), std::string(size, 'a')});
  const Tokenizer tokenizer = tokenizer_of(byte_level_tokenizer_json(merges));
  const std::string text(1'000'003, 'a');
  const Ids ids = encoded(tokenizer, text);  // StepsAreLinearInThePiece bounds the work
  EXPECT_LE(ids.size(), text.size() / 128 + 7);
  EXPECT_EQ(tokenizer.decode(ids), text);
}

TEST(Detokenizer, NeverEmitsHalfACharacter) {
  const Tokenizer tokenizer = tokenizer_of(greeting());
  const std::string bytes   = "h\xC3\xA9 \xE2\x82\xAC\xF0\x9F\x98\x80 \xE2\x82z\xFF\x80\xF0\x9F\x98";
  // Every byte as a token of its own, with any two neighbours replaced by a special token.
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    Ids ids = byte_ids(bytes);
    ids.insert(ids.begin() + static_cast<int64_t>(cut), 264);
    for (const bool skip : {false, true}) {
      Detokenizer detokenizer(tokenizer, skip);
      std::string text;
      for (const TokenId id : ids) {
        const std::string part = detokenizer.add(id);
        EXPECT_TRUE(is_well_formed(part)) << cut;
        text += part;
      }
      text += detokenizer.finish();
      EXPECT_EQ(text, tokenizer.decode(ids, skip)) << cut;
      EXPECT_EQ(detokenizer.finish(), "");
    }
  }
}

// Tokens of any length: for every position, a vocabulary that cuts the text in two there.
TEST(Detokenizer, SplitAtEveryPosition) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z";
  for (size_t cut = 1; cut < text.size(); ++cut) {
    Json json                                               = greeting();
    json["model"]["vocab"][byte_level(text.substr(0, cut))] = cut == 1 ? 'a' : 300;
    json["model"]["vocab"][byte_level(text.substr(cut))]    = cut + 1 == text.size() ? 'z' : 301;
    const Tokenizer tokenizer                               = tokenizer_of(json);
    Detokenizer detokenizer(tokenizer);
    const std::string first = detokenizer.add(cut == 1 ? 'a' : 300);
    EXPECT_EQ(first, text.substr(0, cut - incomplete_suffix(text.substr(0, cut))));
    EXPECT_EQ(first + detokenizer.add(cut + 1 == text.size() ? 'z' : 301), text);
    EXPECT_EQ(detokenizer.finish(), "");
  }
}

// A character that cannot be completed is reported as soon as that is known.
TEST(Detokenizer, HoldsBackOnlyIncompleteCharacters) {
  const Tokenizer tokenizer = tokenizer_of(greeting());
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.add(0xE2), "");
  EXPECT_EQ(detokenizer.add('a'),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(detokenizer.add(0xF0), "");
  EXPECT_EQ(detokenizer.finish(), "\xEF\xBF\xBD");
}

// The two long lists are read on their own, whatever their order is and whatever else has their names.
TEST(Tokenizer, ReadsVocabularyAndMergesInAnyOrder) {
  const Json json                = greeting();
  const Tokenizer expected       = tokenizer_of(json);
  const std::string vocab        = json["model"]["vocab"].dump();
  const std::string merges       = json["model"]["merges"].dump();
  Json others                    = json;
  others["model"]["vocab"]       = nullptr;
  others["model"]["merges"]      = nullptr;
  others["vocab"]                = {{"A", -1}};
  others["post_processor"]       = {{"model", {{"vocab", {{"A", -1}}}, {"merges", Json::array({7})}}}};
  const std::string vocab_first  = R"("vocab":)" + vocab + R"(,"merges":)" + merges;
  const std::string merges_first = R"("merges":)" + merges + R"(,"vocab":)" + vocab;
  for (const std::string& lists : {vocab_first, merges_first, vocab_first + "," + merges_first}) {
    std::string text = others.dump();
    const size_t at  = text.find(R"("model":{"byte_fallback")");
    ASSERT_NE(at, std::string::npos) << text.substr(0, 200);
    for (const char* empty : {R"("merges":null,)", R"("vocab":null)"}) {
      const size_t where = text.find(empty, at);
      ASSERT_NE(where, std::string::npos);
      text.replace(where, std::string_view(empty).size(), empty[1] == 'v' ? lists : "");
    }
    const auto tokenizer = Tokenizer::parse(text, "test.json");
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    EXPECT_EQ(encoded(*tokenizer, "hello world ello"), encoded(expected, "hello world ello"));
    EXPECT_EQ(tokenizer->vocab_size(), expected.vocab_size());
  }
}

TEST(Tokenizer, ErrorsNameFileKeyAndRemedy) {
  const struct {
    const char* pointer;
    Json value;
    const char* named;
  } cases[] = {
      {"/model", nullptr, "model: missing"},
      {"/model/type", "WordPiece", "model.type: \"WordPiece\" is not supported"},
      {"/model/byte_fallback", true, "model.byte_fallback"},
      {"/model/dropout", 0.1, "model.dropout: 0.1"},
      {"/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix"},
      {"/model/vocab", Json::array(), "model.vocab: missing"},
      {"/model/vocab/A", -1, "model.vocab[\"A\"]: -1 is no token id"},
      {"/model/vocab/A", 1e18, "model.vocab[\"A\"]"},
      {"/model/vocab/A", int64_t{1} << 40, "model.vocab[\"A\"]"},
      {"/model/vocab/A", 66, "another token has id 66"},
      {"/model/vocab/A", 264, "added_tokens \"<|start|>\": id 264"},
      {"/model/vocab/\xE4\xBD\xA0", 400, "not in the byte-level alphabet"},
      {"/model/vocab/<|start|>", 5, "5 here and 264 in added_tokens"},
      {"/model/merges", nullptr, "model.merges: missing"},
      {"/model/merges/2", "nospace", "model.merges[2]: \"nospace\""},
      {"/model/merges/2", Json{"a", "b", "c"}, "model.merges[2]"},
      {"/model/merges/2", Json{"a"}, "model.merges[2]: a list: expected two tokens"},
      {"/model/merges/2", {"a", 7}, "model.merges[2]: a list"},
      {"/model/merges/2", {"a", "b", Json::array({"c"})}, "model.merges[2]: a list"},
      {"/model/merges/2", Json::array({Json::array({"a", "b"})}), "model.merges[2]: a list"},
      {"/model/merges/2", {"", "b"}, "model.merges[2]: a list"},
      {"/model/merges/2", " b", "model.merges[2]: \" b\""},
      {"/model/merges/2", "b ", "model.merges[2]: \"b \""},
      {"/model/merges/2", Json::object({{"a", "b"}}), "model.merges[2]: {\"a\":\"b\"}"},
      {"/model/merges/2", "q q", "model.merges[2]: \"q q\""},
      {"/model/merges/2", 7, "model.merges[2]: 7"},
      {"/normalizer", {{"type", "NFC"}}, "normalizer: {\"type\":\"NFC\"}"},
      {"/decoder", {{"type", "WordPiece"}}, "decoder"},
      {"/pre_tokenizer", nullptr, "pre_tokenizer"},
      {"/pre_tokenizer/pretokenizers/0/behavior", "Removed", "behavior must be"},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "(", "pre_tokenizer: PCRE2"},
      {"/pre_tokenizer/pretokenizers/1/add_prefix_space", true, "add_prefix_space"},
      {"/pre_tokenizer/pretokenizers/1/use_regex", true, "use_regex"},
      {"/added_tokens", 3, "added_tokens: expected a list"},
      {"/added_tokens/1", 3, "added_tokens[1].id"},
      {"/added_tokens/1/id", "x", "added_tokens[1].id: \"x\""},
      {"/added_tokens/1/content", "", "added_tokens[1].content"},
      {"/added_tokens/1/lstrip", true, "added_tokens[1]"},
  };
  for (const auto& c : cases) {
    Json json                           = greeting();
    json[Json::json_pointer(c.pointer)] = c.value;
    const std::string message           = error_of(json);
    EXPECT_NE(message.find("folder/test.json: "), std::string::npos) << c.pointer << ": " << message;
    EXPECT_NE(message.find(c.named), std::string::npos) << c.pointer << ": " << message;
  }
  Json json = greeting();
  json["model"]["vocab"].erase("A");
  EXPECT_NE(error_of(json).find("no token for the byte 0x41"), std::string::npos) << error_of(json);

  std::string twice = greeting().dump();
  twice.insert(twice.find("\"vocab\":{") + 9, "\"A\":65,");
  const auto tokenizer = Tokenizer::parse(twice, "test.json");
  ASSERT_FALSE(tokenizer);
  EXPECT_NE(tokenizer.error().message.find("model.vocab[\"A\"]: the token is there twice"), std::string::npos)
      << tokenizer.error().message;
  for (const char* text : {"", "null", "[]", "{", "\xFF"}) EXPECT_FALSE(Tokenizer::parse(text, "x")) << text;
  EXPECT_FALSE(Tokenizer::parse("{\"normalizer\":" + std::string(1'000'000, '['), "x"));
}

TEST(Tokenizer, LoadsFilesAndNamesUnreadableOnes) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "fathom_tokenizer_test";
  std::filesystem::create_directories(folder);
  const std::string path = folder / "tokenizer.json";
  std::ofstream(path) << greeting().dump(2);
  const auto loaded = Tokenizer::load(path);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(encoded(*loaded, "hello"), Ids{259});
  std::ofstream(path, std::ios::trunc).close();
  for (const std::string& bad : {path, folder.string(), (folder / "none.json").string()}) {
    const auto missing = Tokenizer::load(bad);
    ASSERT_FALSE(missing);
    EXPECT_NE(missing.error().message.find(bad + " cannot be read"), std::string::npos)
        << missing.error().message;
  }
  std::filesystem::remove_all(folder);
}

// GPT-2's kind: ByteLevel alone.
TEST(Tokenizer, ByteLevelAloneHasItsOwnPattern) {
  Json json             = greeting();
  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  EXPECT_EQ(encoded(tokenizer_of(json), "hello world"), (Ids{259, 260, 'o', 'r', 'l', 'd'}));
  json["pre_tokenizer"]["use_regex"]             = false;  // the text is one piece, so merges cross words
  json["model"]["vocab"]["o" + byte_level(" w")] = 300;
  Json& merges                                   = json["model"]["merges"];
  merges.erase(4);
  merges.insert(merges.begin(), {"\xC4\xA0 w", "o \xC4\xA0w"});
  EXPECT_EQ(encoded(tokenizer_of(json), "hello w"), (Ids{258, 300}));
}

// Replaces any value of the file by any kind of value, and changes bytes: the result is an error or a working
// tokenizer, never a crash.
TEST(Tokenizer, SurvivesMutatedFiles) {
  const auto use = [](const std::string& text) {
    if (const auto tokenizer = Tokenizer::parse(text, "x")) {
      if (const auto ids = tokenizer->encode("hello <|end|> \xE2\x82\xAC\xFF", AddedTokens::recognised))
        (void)tokenizer->decode(*ids, true);
    } else {
      EXPECT_FALSE(tokenizer.error().message.empty());
    }
  };
  const Json whole    = greeting();
  const Json flat     = whole.flatten();
  const Json values[] = {nullptr,      true, -1,    0,   256,           3e9,
                         uint64_t(-1), "",   "x y", " ", Json::array(), {{"a", 1}}};
  size_t at           = 0;
  for (const auto& [pointer, old] : flat.items()) {
    if (++at % 16 != 0 && pointer.starts_with("/model/vocab")) continue;
    for (const Json& value : values) {
      Json mutated                         = whole;
      mutated[Json::json_pointer(pointer)] = value;
      use(mutated.dump());
    }
  }
  std::mt19937_64 generator(1);
  const std::string text = whole.dump();
  for (int trial = 0; trial < 500; ++trial) {
    std::string mutated = text;
    for (uint64_t changes = 1 + generator() % 3; changes > 0; --changes)
      mutated[generator() % mutated.size()] = "\"{}[]:,0-9e\\u\xFF aZ"[generator() % 18];
    if (trial % 5 == 0) mutated.resize(generator() % mutated.size());
    use(mutated);
  }
}

}  // namespace
}  // namespace fathom::model
