#include "model/pretokenizer.h"

#include <gtest/gtest.h>

#include <string>

#include "model/byte_level_tokenizer.h"

namespace fathom::model {
namespace {

using Pieces = std::vector<std::string_view>;

Pieces split(std::string_view pattern, std::string_view text) {
  const auto compiled = Pretokenizer::compile(pattern);
  EXPECT_TRUE(compiled) << compiled.error().message;
  const auto pieces = compiled->split(text);
  EXPECT_TRUE(pieces) << pieces.error().message;
  return pieces.value_or({});
}

// Expected pieces by hand, from the seven alternatives of kO200kPattern.
TEST(Pretokenizer, O200k) {
  const struct {
    std::string_view text;
    Pieces pieces;
  } cases[] = {
      {"", {}},
      {"Hello, world!", {"Hello", ",", " world", "!"}},
      {"HTTPServer's don'T", {"HTTPServer's", " don'T"}},
      {"ABC def", {"ABC", " def"}},
      {"it'\xC5\xBF", {"it'\xC5\xBF"}},  // long s folds to s
      {"1234567", {"123", "456", "7"}},
      {"a  b", {"a", " ", " b"}},  // the last space joins the word
      {"a   ", {"a", "   "}},
      {"a \n\n b", {"a", " \n\n", " b"}},
      {"x = {};\n/y", {"x", " =", " {};\n/", "y"}},
      {"a\xC2\x85\xC2\x85"
       "b",
       {"a", "\xC2\x85",
        "\xC2\x85"
        "b"}},                                                       // U+0085 is white space
      {"\xE1\xA0\x8E\xE1\xA0\x8E!", {"\xE1\xA0\x8E\xE1\xA0\x8E!"}},  // U+180E is not
      {"\xE4\xBD\xA0\xE5\xA5\xBD\xEF\xBC\x8C", {"\xE4\xBD\xA0\xE5\xA5\xBD", "\xEF\xBC\x8C"}},
      {"<|end|>", {"<|", "end", "|>"}},
  };
  for (const auto& c : cases) EXPECT_EQ(split(kO200kPattern, c.text), c.pieces) << c.text;
}

TEST(Pretokenizer, KeepsWhatDoesNotMatch) {
  EXPECT_EQ(split("b+", "aabbcbb"), (Pieces{"aa", "bb", "c", "bb"}));
  EXPECT_EQ(split("b*", "abc"), (Pieces{"a", "b", "c"}));  // empty matches are skipped
  EXPECT_EQ(split(R"([]\s]|\S)", "] x"), (Pieces{"]", " ", "x"}));
  EXPECT_EQ(split(R"([^]\s]+)", "ab]c"), (Pieces{"ab", "]", "c"}));
}

TEST(Pretokenizer, RefusesBadPatterns) {
  for (const std::string_view pattern : {"(", "[", "a{2,1}", "\\p{Nonsense}", "\\C", "(?<=a*)b", "\\"}) {
    const auto compiled = Pretokenizer::compile(pattern);
    ASSERT_FALSE(compiled) << pattern;
    EXPECT_NE(compiled.error().message.find("PCRE2"), std::string::npos) << compiled.error().message;
  }
}

TEST(Pretokenizer, FailsForCatastrophicBacktracking) {
  const auto compiled = Pretokenizer::compile("(a+)+$");
  ASSERT_TRUE(compiled);
  const auto pieces = compiled->split(std::string(64, 'a') + "b");
  ASSERT_FALSE(pieces);
  EXPECT_NE(pieces.error().message.find("byte 0 of a text of 65"), std::string::npos);
}

// Every alternative over a long run: none may exceed PCRE2's limits.
TEST(Pretokenizer, LongRunsOfOneCharacter) {
  for (const std::string_view unit : {"a", "A", " ", "\n", "!", "\xC3\xA9", "\xE4\xBD\xA0", "\xCC\x81"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    EXPECT_EQ(split(kO200kPattern, text), (Pieces{text})) << unit;
  }
}

}  // namespace
}  // namespace fathom::model
