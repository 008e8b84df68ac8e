#include "serve/stop_strings.h"

#include <algorithm>
#include <utility>

#include "core/expect.h"

namespace fathom::serve {
namespace {

// Appends a byte: returns the length of the longest prefix of `text` that the input now ends with.
size_t advance(const std::string& text, const std::vector<size_t>& border, size_t matched, char byte) {
  while (matched > 0 && (matched == text.size() || text[matched] != byte)) matched = border[matched - 1];
  return matched + (text[matched] == byte ? 1 : 0);
}

std::vector<size_t> borders(const std::string& text) {
  std::vector<size_t> border(text.size(), 0);
  for (size_t i = 1; i < text.size(); ++i) border[i] = advance(text, border, border[i - 1], text[i]);
  return border;
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> stops, bool keep) : keep_(keep) {
  for (std::string& stop : stops) {
    FATHOM_EXPECT(!stop.empty(), "an empty stop string is met everywhere: leave it out");
    std::vector<size_t> border = borders(stop);
    patterns_.push_back({.text = std::move(stop), .border = std::move(border)});
  }
}

std::string StopStrings::add(std::string_view part) {
  if (hit_) return "";
  size_t end = held_.size();
  held_ += part;
  for (; end < held_.size(); ++end) {
    size_t longest = 0;
    for (size_t i = 0; i < patterns_.size(); ++i) {
      Pattern& pattern = patterns_[i];
      pattern.matched  = advance(pattern.text, pattern.border, pattern.matched, held_[end]);
      if (pattern.matched < pattern.text.size() || pattern.matched <= longest) continue;
      longest = pattern.matched;
      hit_    = i;
    }
    if (!hit_) continue;
    held_.resize(end + 1 - (keep_ ? 0 : longest));
    return std::exchange(held_, "");
  }
  size_t kept = 0;
  for (const Pattern& pattern : patterns_) kept = std::max(kept, pattern.matched);
  std::string shown = held_.substr(0, held_.size() - kept);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopStrings::finish() {
  for (Pattern& pattern : patterns_) pattern.matched = 0;
  return std::exchange(held_, "");
}

}  // namespace fathom::serve
