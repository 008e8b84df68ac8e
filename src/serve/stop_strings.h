// Finds stop strings in a text that arrives in parts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::serve {

// The text stops where the first completed stop string begins; of several completed at the same byte, the
// longest counts. So the result does not depend on how the text was cut. Costs O(stop strings) for each byte.
class StopStrings {
 public:
  // No stop string may be empty. `keep` leaves the stop string in the text.
  explicit StopStrings(std::vector<std::string> stops, bool keep = false);

  // The text that may be shown now: all but a tail that may become a stop string. "" after a hit. The result
  // is well-formed UTF-8 where parts and stop strings are.
  std::string add(std::string_view part);
  // The end of the text: returns the held tail and resets everything but hit().
  std::string finish();

  std::optional<size_t> hit() const { return hit_; }  // index of the stop string that was met

 private:
  struct Pattern {
    std::string text;
    // [i]: the longest proper prefix of text[0, i] that is also its suffix (Knuth, Morris, Pratt).
    std::vector<size_t> border;
    size_t matched = 0;  // length of the longest prefix of `text` that the input ends with
  };

  std::vector<Pattern> patterns_;
  bool keep_;
  std::string held_;
  std::optional<size_t> hit_;
};

}  // namespace fathom::serve
