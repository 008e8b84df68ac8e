#include "core/utf8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace fathom {
namespace {

TEST(Utf8, ReplacesMaximalSubparts) {
  const struct {
    std::string_view bytes, text;
  } cases[] = {
      {"", ""},
      {"plain \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80", "plain \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"},
      {"\x80", "\xEF\xBF\xBD"},
      {"\xC0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD"},                                  // overlong: two subparts
      {"\xE0\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},                  // overlong
      {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},                  // a surrogate
      {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},  // above U+10FFFF
      {"\xF0\x9F\x98", "\xEF\xBF\xBD"},                                          // one subpart, cut short
      {"\xF0\x9F\x98z", "\xEF\xBF\xBDz"},
      {"\xE2\x82\xE2\x82\xAC", "\xEF\xBF\xBD\xE2\x82\xAC"},
      {"\xFF", "\xEF\xBF\xBD"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(well_formed(c.bytes), c.text) << testing::PrintToString(c.bytes);
    EXPECT_EQ(is_well_formed(c.bytes), c.bytes == c.text) << testing::PrintToString(c.bytes);
    EXPECT_TRUE(is_well_formed(c.text));
  }
}

// Of all strings of up to three bytes, in a sample of byte values on both sides of every limit of table 3-7:
// a suffix is incomplete exactly when some continuation makes it one character.
TEST(Utf8, IncompleteSuffixIsWhatMoreBytesCouldComplete) {
  constexpr unsigned char kValues[] = {0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xDF,
                                       0xE0, 0xE1, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF};
  const auto completable            = [&](const std::string& start) {
    std::string one = start, two = start, three = start;
    for (unsigned char a : {0x80, 0x90, 0xA0}) {  // a second byte of every lead is among them
      if (is_well_formed(one = start + char(a)) || is_well_formed(two = one + '\x80') ||
          is_well_formed(three = two + '\x80'))
        return true;
    }
    return false;
  };
  for (unsigned char a : kValues)
    for (unsigned char b : kValues)
      for (unsigned char c : kValues) {
        const std::string bytes = {char(a), char(b), char(c)};
        size_t expected         = 0;
        for (size_t size = 1; size <= 3; ++size) {
          const std::string suffix = bytes.substr(3 - size);
          const bool one =
              std::all_of(suffix.begin() + 1, suffix.end(), [](char x) { return (x & 0xC0) == 0x80; });
          if (static_cast<unsigned char>(suffix[0]) >= 0xC0 && one && completable(suffix)) expected = size;
        }
        ASSERT_EQ(incomplete_suffix(bytes), expected) << testing::PrintToString(bytes);
      }
}

}  // namespace
}  // namespace fathom
