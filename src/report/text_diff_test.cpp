#include "report/text_diff.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace fathom::report {
namespace {

using Lines = std::vector<std::string>;

std::string text_of(const Lines& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// The length of a longest common subsequence, by its definition.
size_t common(const Lines& a, const Lines& b, size_t i = 0, size_t j = 0) {
  if (i == a.size() || j == b.size()) return 0;
  if (a[i] == b[j]) return 1 + common(a, b, i + 1, j + 1);
  return std::max(common(a, b, i + 1, j), common(a, b, i, j + 1));
}

TEST(TextDiff, IsShortestAndTurnsOneTextIntoTheOther) {
  std::mt19937 engine(7);
  for (int round = 0; round < 300; ++round) {
    Lines a, b;
    for (Lines* lines : {&a, &b})
      for (unsigned i = engine() % 8; i > 0; --i)
        lines->push_back(std::string(1, static_cast<char>('a' + engine() % 3)));
    const TextDiff diff = text_diff(text_of(a), text_of(b));
    SCOPED_TRACE(text_of(a) + "--\n" + text_of(b));
    EXPECT_EQ(static_cast<size_t>(diff.removed), a.size() - common(a, b));
    EXPECT_EQ(static_cast<size_t>(diff.added), b.size() - common(a, b));
    EXPECT_EQ(diff.lines.empty(), a == b);
    if (std::any_of(diff.lines.begin(), diff.lines.end(),
                    [](const DiffLine& line) { return line.kind == DiffLine::Kind::gap; }))
      continue;
    Lines from, to;
    for (const auto& [kind, text] : diff.lines) {
      if (kind != DiffLine::Kind::added) from.push_back(text);
      if (kind != DiffLine::Kind::removed) to.push_back(text);
    }
    if (a != b) {
      EXPECT_EQ(from, a);
      EXPECT_EQ(to, b);
    }
  }
}

TEST(TextDiff, LeavesOutWhatIsFarFromAChange) {
  Lines a;
  for (int i = 0; i < 20; ++i) a.push_back(std::to_string(i));
  Lines b = a;
  b[10]   = "x";
  std::string shown;
  for (const auto& [kind, text] : text_diff(text_of(a), text_of(b)).lines)
    shown += std::string(1, " -+~"[static_cast<int>(kind)]) + text + ";";
  EXPECT_EQ(shown, "~; 8; 9;-10;+x; 11; 12;~;");
}

TEST(TextDiff, TakesTextsWithoutAnEnd) {
  EXPECT_TRUE(text_diff("", "").lines.empty());
  EXPECT_TRUE(text_diff("a\nb", "a\nb\n").lines.empty()) << "a last line ends with or without a line feed";
  EXPECT_EQ(text_diff("", "a").added, 1);
  EXPECT_EQ(text_diff("a\n\n", "a\n").removed, 1);
}

}  // namespace
}  // namespace fathom::report
