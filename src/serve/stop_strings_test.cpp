#include "serve/stop_strings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "core/utf8.h"
#include "serve/stop_strings_reference.h"

namespace fathom::serve {
namespace {

TEST(StopStrings, ShowsAtOnceWhatCannotBecomeAStop) {
  StopStrings stops({"END", "\n\n"});
  EXPECT_EQ(stops.add("abc"), "abc");
  EXPECT_EQ(stops.add("x E"), "x ");
  EXPECT_EQ(stops.add("N"), "");
  EXPECT_EQ(stops.add("E"), "EN");
  EXPECT_EQ(stops.add("NDI"), "");
  EXPECT_EQ(stops.hit(), 0u);
  EXPECT_EQ(stops.add("more"), "");
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, GivesTheTailBackAtTheEnd) {
  StopStrings stops({"\n\n"});
  EXPECT_EQ(stops.add("a\n"), "a");
  EXPECT_EQ(stops.finish(), "\n");
  EXPECT_EQ(stops.add("\n"), "");  // after finish() the earlier "\n" is forgotten
  EXPECT_EQ(stops.finish(), "\n");
  EXPECT_FALSE(stops.hit());
}

TEST(StopStrings, TheFirstToBeWholeWins) {
  StopStrings first({"bcd", "c"});
  EXPECT_EQ(first.add("abcd"), "ab");
  EXPECT_EQ(first.hit(), 1u);
  StopStrings longest({"c", "bc", "abc"});
  EXPECT_EQ(longest.add("xabc"), "x");
  EXPECT_EQ(longest.hit(), 2u);
}

TEST(StopStrings, NoneIsPassingThrough) {
  StopStrings stops({});
  EXPECT_EQ(stops.add("abc"), "abc");
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, DoNotDependOnTheCuts) {
  std::mt19937 random(7);
  const auto below   = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const auto text_of = [&](size_t characters) {
    const std::array<std::string, 5> alphabet = {"a", "b", "é", "è", "😀"};
    std::string text;
    for (; characters > 0; --characters) text += alphabet[below(alphabet.size())];
    return text;
  };
  int64_t hits = 0;
  for (int64_t round = 0; round < 20000; ++round) {
    std::vector<std::string> stops(below(4));
    for (std::string& stop : stops) stop = text_of(1 + below(5));
    const bool keep = below(2) == 0;
    StopStrings matcher(stops, keep);
    std::string text, shown;
    for (size_t parts = below(12); parts > 0; --parts) {
      const std::string part = text_of(below(5));
      text += part;
      const std::string now = matcher.add(part);
      ASSERT_TRUE(is_well_formed(now));
      shown += now;
      if (matcher.hit()) continue;
      // Exactly the text that may become a stop string is held back.
      ASSERT_TRUE(text.starts_with(shown));
      const std::string held = text.substr(shown.size());
      ASSERT_TRUE(held.empty() || std::any_of(stops.begin(), stops.end(), [&](const std::string& stop) {
                    return held.size() < stop.size() && stop.starts_with(held);
                  }));
    }
    shown += matcher.finish();
    ASSERT_EQ(shown, up_to_stop(text, stops, keep)) << text;
    const bool met = std::any_of(stops.begin(), stops.end(), [&](const std::string& stop) {
      return text.find(stop) != std::string::npos;
    });
    ASSERT_EQ(matcher.hit().has_value(), met);
    hits += met;
  }
  EXPECT_GT(hits, 5000);
}

}  // namespace
}  // namespace fathom::serve
