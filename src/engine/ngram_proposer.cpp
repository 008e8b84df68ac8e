#include "engine/ngram_proposer.h"

#include <algorithm>

namespace fathom::engine {

std::span<const model::TokenId> ngram_draft(std::span<const model::TokenId> tokens, int64_t count) {
  constexpr size_t kLongest = 4, kShortest = 2;
  const size_t size = tokens.size();
  size_t longest = kShortest - 1, after = 0;
  // `end`: one past an earlier occurrence, which is followed by at least one token.
  for (size_t end = size - std::min<size_t>(size, 1); end >= kShortest && longest < kLongest; --end) {
    size_t same = 0;
    while (same < std::min(end, kLongest) && tokens[end - 1 - same] == tokens[size - 1 - same]) ++same;
    if (same > longest) longest = same, after = end;
  }
  if (longest < kShortest) return {};
  return tokens.subspan(after, std::min(size - after, static_cast<size_t>(std::max<int64_t>(count, 0))));
}

}  // namespace fathom::engine
