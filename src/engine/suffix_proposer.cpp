#include "engine/suffix_proposer.h"

#include <algorithm>

#include "engine/ngram_proposer.h"

namespace fathom::engine {
namespace {

// What followed the match, at most as many tokens as match. Longer matches are likelier to go on.
Draft after(const SequenceMatcher::Match& match, std::span<const model::TokenId> tokens, int64_t count) {
  Draft draft;
  const double likely = static_cast<double>(match.length) / static_cast<double>(match.length + 1);
  const int64_t end   = std::min({match.end + std::min(match.length, count), std::ssize(tokens)});
  for (int64_t at = match.end; at < end; ++at) draft.add(tokens[static_cast<size_t>(at)], likely);
  return draft;
}

}  // namespace

Draft SuffixProposer::propose(const Sequence& sequence, int64_t count) {
  SequenceMatcher& matcher = own_[sequence.id];
  matcher.extend(sequence.tokens);
  Draft own = after(matcher.longest(sequence.tokens), sequence.tokens, count);
  if (!sequence.request.cache_salt.empty()) return own;
  Draft others = finished_.continue_from(sequence.tokens, count);
  return others.expected() >= own.expected() ? others : own;
}

void SuffixProposer::finished(const Sequence& sequence) {
  own_.erase(sequence.id);
  if (sequence.request.cache_salt.empty()) finished_.add(sequence.tokens, sequence.num_prompt_tokens());
}

std::unique_ptr<Proposer> make_proposer(const EngineConfig& config) {
  if (config.draft_tokens == 0) return nullptr;
  using enum EngineConfig::DraftMethod;
  switch (config.draft_method) {
    case ngram:
      return std::make_unique<NgramProposer>(config.prompt_lookup_min, config.prompt_lookup_max);
    case suffix:
      return std::make_unique<SuffixProposer>();
    case eagle3:
      return nullptr;
  }
  return nullptr;
}

}  // namespace fathom::engine
