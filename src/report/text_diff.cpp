#include "report/text_diff.h"

#include <algorithm>
#include <cstdint>

namespace fathom::report {
namespace {

constexpr size_t kAround = 2;  // unchanged lines shown on either side of a change

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// Every line of both texts, in the order of the edit.
std::vector<DiffLine> edit_script(const std::vector<std::string_view>& a,
                                  const std::vector<std::string_view>& b) {
  // common[i * width + j]: lines that a from i and b from j have in common, in order.
  const size_t width = b.size() + 1;
  std::vector<int32_t> common((a.size() + 1) * width);
  for (size_t i = a.size(); i-- > 0;)
    for (size_t j = b.size(); j-- > 0;)
      common[i * width + j] = a[i] == b[j] ? common[(i + 1) * width + j + 1] + 1
                                           : std::max(common[(i + 1) * width + j], common[i * width + j + 1]);
  std::vector<DiffLine> script;
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (i < a.size() && j < b.size() && a[i] == b[j]) {
      script.push_back({DiffLine::Kind::same, std::string(a[i++])});
      ++j;
    } else if (j == b.size() || (i < a.size() && common[(i + 1) * width + j] >= common[i * width + j + 1])) {
      script.push_back({DiffLine::Kind::removed, std::string(a[i++])});
    } else {
      script.push_back({DiffLine::Kind::added, std::string(b[j++])});
    }
  }
  return script;
}

}  // namespace

TextDiff text_diff(std::string_view from, std::string_view to) {
  const std::vector<DiffLine> script = edit_script(lines_of(from), lines_of(to));
  std::vector<bool> shown(script.size());
  TextDiff diff;
  for (size_t i = 0; i < script.size(); ++i) {
    if (script[i].kind == DiffLine::Kind::same) continue;
    ++(script[i].kind == DiffLine::Kind::removed ? diff.removed : diff.added);
    for (size_t k = i - std::min(i, kAround); k < std::min(script.size(), i + kAround + 1); ++k)
      shown[k] = true;
  }
  if (diff.removed + diff.added == 0) return diff;
  for (size_t i = 0; i < script.size(); ++i) {
    if (shown[i])
      diff.lines.push_back(script[i]);
    else if (diff.lines.empty() || diff.lines.back().kind != DiffLine::Kind::gap)
      diff.lines.push_back({DiffLine::Kind::gap, ""});
  }
  return diff;
}

}  // namespace fathom::report
