// Where a text that arrives in parts meets one of several stop strings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::serve {

// The text stops where the first stop string to be whole begins; of those whole at the same byte, the
// longest. So it does not depend on how the text was cut. Costs O(stop strings) a byte.
class StopStrings {
 public:
  // None of them empty. `keep` leaves the stop string in the text.
  explicit StopStrings(std::vector<std::string> stops, bool keep = false);

  // What may be shown now: everything but a tail that may yet become a stop string. "" after a hit. Where
  // parts and stop strings are well-formed UTF-8, so is what comes back.
  std::string add(std::string_view part);
  // No more will come: the tail. Then as new, but for hit().
  std::string finish();

  std::optional<size_t> hit() const { return hit_; }  // index of the stop string that was met

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t>
        border;          // [i]: longest proper prefix of text[0, i] that ends it (Knuth, Morris, Pratt)
    size_t matched = 0;  // bytes of `text` that what came so far ends with
  };

  std::vector<Pattern> patterns_;
  bool keep_;
  std::string held_;
  std::optional<size_t> hit_;
};

}  // namespace fathom::serve
