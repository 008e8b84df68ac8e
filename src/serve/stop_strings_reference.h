// For tests: the definition of stop strings, written as plainly as possible.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace fathom::serve {

// `text` up to the first prefix of it that ends with a stop string.
inline std::string up_to_stop(const std::string& text, const std::vector<std::string>& stops, bool keep) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops)
      if (end >= stop.size() && text.compare(end - stop.size(), stop.size(), stop) == 0)
        longest = std::max(longest, stop.size());
    if (longest > 0) return text.substr(0, keep ? end : end - longest);
  }
  return text;
}

}  // namespace fathom::serve
