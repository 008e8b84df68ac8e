#include "grammar/grammar_constraint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "grammar/json_schema.h"
#include "grammar/json_schema_reference.h"
#include "model/byte_level_tokenizer.h"

namespace fathom::grammar {
namespace {

using model::TokenId;
using model::Tokenizer;

constexpr TokenId kEnd = 2;  // <|return|> of the bundled model

Tokenizer bundled_tokenizer() { return *Tokenizer::load(FATHOM_SOURCE_TREE "/models/tiny/tokenizer.json"); }

// A tokenizer whose tokens cut JSON within characters and escapes and across the ends of strings.
Tokenizer awkward_tokenizer() {
  std::vector<model::TokenPair> merges;
  for (const char* token : {"\"\"",
                            "\\u",
                            "\\\"",
                            "\":",
                            "\",\"",
                            "\"}",
                            "},{",
                            "\xC3\xA9\xC3",
                            "\xA9\"",
                            "\x9F\x98",
                            "\xF0\x9F",
                            "\x98\x80"
                            "a",
                            "00e9",
                            "\\ud8",
                            "3d\\u",
                            "de00",
                            "[[",
                            "]]",
                            "]}",
                            ": ",
                            ", ",
                            "tr",
                            "ue",
                            "null",
                            "123",
                            "1.5",
                            "e+",
                            "-1",
                            "\"a",
                            "ab\"",
                            "\":{\"",
                            "\\\\",
                            "a\\",
                            "n\"}",
                            "{\"n",
                            "am",
                            "e\": ",
                            "\xE6\xBC",
                            "\xA2\xE6",
                            "\"\xE6",
                            "   "}) {
    const std::string bytes = token;
    for (size_t i = 1; i < bytes.size(); ++i) merges.push_back({bytes.substr(0, i), bytes.substr(i, 1)});
  }
  return *Tokenizer::parse(model::byte_level_tokenizer_json(merges, {"<|end|>", "<|other|>"}).dump(),
                           "awkward");
}

Tokenizer large_tokenizer(const std::string& characters) {
  std::vector<model::TokenPair> merges;
  std::vector<std::string> tokens = {""};
  std::set<std::string> known;
  std::mt19937 random(1);
  while (merges.size() < 20000) {
    const std::string left = tokens[random() % tokens.size()];
    const std::string right(1, characters[random() % characters.size()]);
    if (!known.insert(left + right).second) continue;
    tokens.push_back(left + right);
    if (!left.empty()) merges.push_back({left, right});
  }
  return *Tokenizer::parse(model::byte_level_tokenizer_json(merges, {"<|end|>"}).dump(), "large");
}

std::shared_ptr<const JsonGrammar> grammar_of(const std::string& schema) {
  auto grammar = compile_json_schema(schema);
  EXPECT_TRUE(grammar) << grammar.error().message;
  return *grammar;
}

std::set<TokenId> allowed_by(GrammarConstraint& constraint, int64_t vocab_size) {
  std::vector<float> logits(static_cast<size_t>(vocab_size), 1.5f);
  constraint.mask_logits(logits);
  std::set<TokenId> allowed;
  for (size_t id = 0; id < logits.size(); ++id)
    if (logits[id] == 1.5f)
      allowed.insert(static_cast<TokenId>(id));
    else
      EXPECT_EQ(logits[id], -INFINITY);
  return allowed;
}

// The definition: a token is allowed where the matcher accepts its bytes one after the other.
std::set<TokenId> expected(JsonMatcher matcher, const Tokenizer& tokenizer, TokenId end_id) {
  matcher.commit();
  std::set<TokenId> allowed;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.is_special(id) || tokenizer.bytes(id).empty()) continue;
    JsonMatcher copy = matcher;
    bool fits        = true;
    for (const char c : tokenizer.bytes(id)) fits = fits && copy.push(static_cast<uint8_t>(c));
    if (fits) allowed.insert(id);
  }
  if (matcher.complete()) allowed.insert(end_id);
  return allowed;
}

// Draws uniformly among the allowed tokens until the end token; with `check_sets`, checks every mask.
std::string generate(const Tokenizer& tokenizer, const std::shared_ptr<const VocabularyTrie>& trie,
                     const std::string& schema, TokenId end_id, RandomSchemas& random, bool check_sets) {
  const auto grammar = grammar_of(schema);
  GrammarConstraint constraint(trie, grammar, {end_id});
  JsonMatcher matcher(grammar);
  std::string text;
  for (int step = 0; step < 5000; ++step) {
    const auto allowed = allowed_by(constraint, trie->vocab_size);
    if (check_sets) {
      EXPECT_EQ(allowed, expected(matcher, tokenizer, end_id)) << schema << " after " << text;
    }
    if (allowed.empty()) break;
    // Where the end token is allowed, it is drawn half of the time.
    const bool end = allowed.count(end_id) > 0 && random.below(2) == 0;
    const TokenId id =
        end ? end_id : *std::next(allowed.begin(), random.below(static_cast<int64_t>(allowed.size())));
    constraint.accept_token(id);
    if (id == end_id) {
      EXPECT_EQ(allowed_by(constraint, trie->vocab_size), std::set<TokenId>{end_id});
      return text;
    }
    text += tokenizer.bytes(id);
    for (const char c : tokenizer.bytes(id)) EXPECT_TRUE(matcher.push(static_cast<uint8_t>(c)));
  }
  ADD_FAILURE() << schema << " does not end: " << text.substr(0, 300);
  return text;
}

TEST(GrammarConstraint, AllowsExactlyTheTokensThatTheMatcherAccepts) {
  const Tokenizer tokenizer = awkward_tokenizer();
  const TokenId end_id      = *tokenizer.added_token("<|end|>");
  const auto trie           = std::make_shared<const VocabularyTrie>(tokenizer, tokenizer.vocab_size() + 13);
  for (uint32_t seed = 0; seed < 120; ++seed) {
    RandomSchemas random(seed);
    const OrderedJson schema = random.schema();
    const std::string text   = generate(tokenizer, trie, schema.dump(), end_id, random, true);
    const auto value         = OrderedJson::parse(text, nullptr, false);
    ASSERT_FALSE(value.is_discarded()) << text;
    EXPECT_TRUE(validates(schema, value)) << schema << " gave " << text;
  }
}

TEST(GrammarConstraint, ShortAndLongStringsCountCharactersAcrossTokens) {
  const Tokenizer tokenizer = awkward_tokenizer();
  const TokenId end_id      = *tokenizer.added_token("<|end|>");
  const auto trie           = std::make_shared<const VocabularyTrie>(tokenizer, tokenizer.vocab_size());
  for (
      const char* schema :
      {R"({"type":"string","minLength":3,"maxLength":5})",
       R"({"anyOf":[{"type":"string","maxLength":2},{"type":"string","minLength":4,"maxLength":7}]})",
       R"({"type":"array","items":{"type":"string","maxLength":1},"maxItems":3})",
       R"({"type":"object","additionalProperties":{"type":"string","maxLength":2},"properties":{"ab":{"type":"null"}}})",
       R"({"anyOf":[{"type":"string","maxLength":4},{"type":"string","pattern":"^a+$"},{"const":"ab"}]})"})
    for (uint32_t seed = 0; seed < 25; ++seed) {
      RandomSchemas random(seed);
      const std::string text = generate(tokenizer, trie, schema, end_id, random, true);
      const auto value       = OrderedJson::parse(text, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << text;
      EXPECT_TRUE(validates(OrderedJson::parse(schema), value)) << schema << " gave " << text;
    }
}

TEST(GrammarConstraint, BundledTokenizerWritesValidJson) {
  const Tokenizer tokenizer = bundled_tokenizer();
  const auto trie           = std::make_shared<const VocabularyTrie>(tokenizer, tokenizer.vocab_size());
  for (uint32_t seed = 0; seed < 200; ++seed) {
    RandomSchemas random(seed + 7000);
    const OrderedJson schema = random.object(4);
    const std::string text   = generate(tokenizer, trie, schema.dump(), kEnd, random, seed % 20 == 0);
    const auto value         = OrderedJson::parse(text, nullptr, false);
    ASSERT_FALSE(value.is_discarded()) << text;
    EXPECT_TRUE(validates(schema, value)) << schema << " gave " << text;
  }
}

TEST(GrammarConstraint, AllowsEveryTokenizationOfAValue) {
  const Tokenizer tokenizer = awkward_tokenizer();
  const TokenId end_id      = *tokenizer.added_token("<|end|>");
  const auto trie           = std::make_shared<const VocabularyTrie>(tokenizer, tokenizer.vocab_size());
  for (uint32_t seed = 500; seed < 600; ++seed) {
    RandomSchemas random(seed);
    const OrderedJson schema = random.schema();
    const std::string text   = random.instance(schema).dump();
    GrammarConstraint constraint(trie, grammar_of(schema.dump()), {end_id});
    for (size_t at = 0; at < text.size();) {
      std::vector<TokenId> next;  // every token that the text continues with
      for (TokenId id = 0; id < tokenizer.vocab_size(); ++id)
        if (!tokenizer.is_special(id) && !tokenizer.bytes(id).empty() &&
            text.compare(at, tokenizer.bytes(id).size(), tokenizer.bytes(id)) == 0)
          next.push_back(id);
      const auto allowed = allowed_by(constraint, trie->vocab_size);
      for (const TokenId id : next) ASSERT_TRUE(allowed.count(id)) << schema << " at " << text.substr(at);
      const TokenId id = next[static_cast<size_t>(random.below(static_cast<int64_t>(next.size())))];
      constraint.accept_token(id);
      at += tokenizer.bytes(id).size();
    }
    EXPECT_TRUE(allowed_by(constraint, trie->vocab_size).count(end_id)) << schema << " after " << text;
  }
}

// So many parser states that the trie walk is cut short: the mask is a subset of the exact one and keeps
// every allowed single-byte token.
TEST(GrammarConstraint, AWalkCutShortStillAllowsEveryText) {
  const Tokenizer tokenizer = large_tokenizer("abcdefghij");
  const TokenId end_id      = *tokenizer.added_token("<|end|>");
  const auto trie           = std::make_shared<const VocabularyTrie>(tokenizer, tokenizer.vocab_size());
  OrderedJson schema        = {{"anyOf", OrderedJson::array()}};
  for (int i = 10; i < 60; ++i)
    schema["anyOf"].push_back({{"type", "string"}, {"pattern", "^[a-j ]{2," + std::to_string(i) + "}$"}});
  const auto grammar = grammar_of(schema.dump());
  GrammarConstraint constraint(trie, grammar, {end_id});
  JsonMatcher matcher(grammar);
  bool cut = false;
  for (const char byte : std::string("\"aj\"")) {
    const auto allowed = allowed_by(constraint, trie->vocab_size);
    const auto all     = expected(matcher, tokenizer, end_id);
    for (const TokenId id : allowed) EXPECT_TRUE(all.count(id)) << id;
    for (const TokenId id : all) {
      EXPECT_TRUE(allowed.count(id) || tokenizer.bytes(id).size() > 1) << id;
    }
    cut |= allowed.size() < all.size();
    constraint.accept_token(static_cast<TokenId>(static_cast<uint8_t>(byte)));  // byte b has id b
    ASSERT_TRUE(matcher.push(static_cast<uint8_t>(byte)));
  }
  EXPECT_TRUE(cut);  // else the test tests nothing
  EXPECT_TRUE(allowed_by(constraint, trie->vocab_size).count(end_id));
}

TEST(GrammarConstraint, ContractsAreKept) {
  const Tokenizer tokenizer = bundled_tokenizer();
  const auto trie           = std::make_shared<const VocabularyTrie>(tokenizer, tokenizer.vocab_size() + 5);
  GrammarConstraint constraint(trie, grammar_of(R"({"type":"boolean"})"), {kEnd});
  std::vector<float> few(3);
  EXPECT_THROW(constraint.mask_logits(few), std::logic_error);
  EXPECT_THROW(constraint.accept_token(kEnd), std::logic_error);  // too early
  EXPECT_THROW(constraint.accept_token(static_cast<TokenId>(tokenizer.vocab_size() + 1)),
               std::logic_error);                              // no text
  EXPECT_THROW(constraint.accept_token(5), std::logic_error);  // <|start|>
  EXPECT_THROW(constraint.accept_token(tokenizer.encode("x")->front()), std::logic_error);
  EXPECT_THROW(GrammarConstraint(trie, grammar_of("{}"), {}), std::logic_error);
  EXPECT_THROW(VocabularyTrie(tokenizer, 10), std::logic_error);
}

// Masks within a long string and at its end are exact.
TEST(VocabularyTrie, HoldsALargeVocabulary) {
  const Tokenizer tokenizer = large_tokenizer("abcdefghij \"\\{}:,0123\xC3\xA9");
  const auto trie           = std::make_shared<const VocabularyTrie>(tokenizer, tokenizer.vocab_size());
  const TokenId end_id      = *tokenizer.added_token("<|end|>");
  RandomSchemas draw(3);
  for (
      const char* schema :
      {R"({"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string","maxLength":30}},"required":["a","b"]})",
       R"({"type":"object"})"}) {
    const auto grammar = grammar_of(schema);
    GrammarConstraint constraint(trie, grammar, {end_id});
    JsonMatcher matcher(grammar);
    for (int step = 0; step < 12; ++step) {
      const auto allowed = allowed_by(constraint, trie->vocab_size);
      ASSERT_EQ(allowed, expected(matcher, tokenizer, end_id)) << schema;
      const TokenId id = *std::next(allowed.begin(), draw.below(static_cast<int64_t>(allowed.size())));
      if (id == end_id) break;
      constraint.accept_token(id);
      for (const char c : tokenizer.bytes(id)) ASSERT_TRUE(matcher.push(static_cast<uint8_t>(c)));
    }
  }
}

}  // namespace
}  // namespace fathom::grammar
