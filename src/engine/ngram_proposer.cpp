#include "engine/ngram_proposer.h"

#include <algorithm>

namespace fathom::engine {

NgramMatch ngram_match(std::span<const model::TokenId> tokens, int64_t count, int64_t shortest,
                       int64_t longest) {
  const size_t size = tokens.size(), least = static_cast<size_t>(shortest),
               most = static_cast<size_t>(longest);
  size_t length = least - 1, after = 0;
  // `end`: one past an earlier occurrence, which is followed by at least one token.
  for (size_t end = size - std::min<size_t>(size, 1); end >= least && length < most; --end) {
    size_t same = 0;
    while (same < std::min(end, most) && tokens[end - 1 - same] == tokens[size - 1 - same]) ++same;
    if (same > length) length = same, after = end;
  }
  if (length < least) return {};
  return {.following =
              tokens.subspan(after, std::min(size - after, static_cast<size_t>(std::max<int64_t>(count, 0)))),
          .length = static_cast<int64_t>(length)};
}

Draft NgramProposer::propose(const Sequence& sequence, int64_t count) {
  const NgramMatch match = ngram_match(sequence.tokens, count, shortest_, longest_);
  const double likely    = static_cast<double>(match.length) / static_cast<double>(longest_ + 1);
  Draft draft;
  for (const model::TokenId token : match.following) draft.add(token, likely);
  return draft;
}

}  // namespace fathom::engine
