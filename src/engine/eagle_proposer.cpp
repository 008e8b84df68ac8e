#include "engine/eagle_proposer.h"

#include <algorithm>
#include <span>

namespace fathom::engine {

void EagleProposer::computed(RequestId sequence, int64_t first, View<const float, 2> features) {
  constexpr int64_t kKept = model::Eagle::kWindow;
  Reader& reader          = read_[sequence];
  const int64_t size = drafter_->feature_size(), end = reader.first + std::ssize(reader.features) / size;
  if (first < reader.first || first > end) {  // its first rows, behind a cached prefix; or computed anew
    reader.features.clear();
    reader.first = first;
  } else {  // in place of those of rejected drafts
    reader.features.resize(static_cast<size_t>((first - reader.first) * size));
  }
  reader.features.insert(reader.features.end(), features.data(), features.data() + features.size());
  const int64_t more = std::ssize(reader.features) / size - 2 * kKept;
  if (more <= 0) return;
  reader.features.erase(reader.features.begin(), reader.features.begin() + (more + kKept) * size);
  reader.first += more + kKept;
}

Draft EagleProposer::propose(const Sequence& sequence, int64_t count) {
  Draft draft;
  const auto found = read_.find(sequence.id);
  if (found == read_.end()) return draft;
  Reader& reader             = found->second;
  model::Eagle::State& state = reader.state;
  const int64_t size = drafter_->feature_size(), known = sequence.num_computed_tokens;
  if (state.keys.empty() || reader.first > state.end) drafter_->restart(state, reader.first);
  // A position is read together with the token after it.
  const int64_t end =
      std::min({known, sequence.num_tokens() - 1, reader.first + std::ssize(reader.features) / size});
  if (const int64_t rows = end - state.end; rows > 0) {
    const View<const float, 2> features(reader.features.data() + (state.end - reader.first) * size,
                                        {rows, size});
    drafter_->read(
        state, features,
        std::span(sequence.tokens).subspan(static_cast<size_t>(state.end + 1), static_cast<size_t>(rows)));
    reader.features.erase(reader.features.begin(), reader.features.begin() + (end - reader.first) * size);
    reader.first = end;
  }
  if (state.end + 1 != sequence.num_tokens())
    return draft;  // the newest token's predecessor is still to come
  for (const auto& [token, probability] :
       drafter_->draft(state, std::min(count, model::Eagle::kAhead), kLeastProbability))
    draft.add(token, probability);
  return draft;
}

}  // namespace fathom::engine
