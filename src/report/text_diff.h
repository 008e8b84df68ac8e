// The difference of two texts by lines: a longest common subsequence, in hunks with two lines around each
// change. For source files, of at most a few hundred lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fathom::report {

struct DiffLine {
  enum class Kind { same, removed, added, gap } kind = Kind::same;  // gap: lines left out, no text
  std::string text;                                                 // without its end
};

struct TextDiff {
  std::vector<DiffLine> lines;  // empty for equal texts
  int removed = 0, added = 0;
};
TextDiff text_diff(std::string_view from, std::string_view to);

}  // namespace fathom::report
