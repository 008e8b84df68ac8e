// Drafts from what was written before: the sequence's own text, and the answers that have finished
// (SuffixDecoding; Oliaro et al., NeurIPS 2025).
#pragma once

#include <cstdint>
#include <unordered_map>

#include "engine/proposer.h"
#include "engine/suffix_index.h"

namespace fathom::engine {

// Requests with a cache salt neither read nor leave anything in the index of finished answers: how long a
// step takes would tell one of them what another wrote.
class SuffixProposer final : public Proposer {
 public:
  static constexpr int64_t kDepth = 24, kNodes = int64_t{1} << 19;

  explicit SuffixProposer(int64_t nodes = kNodes) : finished_(kDepth, nodes) {}

  // The better of two drafts, by the number of tokens that are expected to be right.
  Draft propose(const Sequence& sequence, int64_t count) override;
  void finished(const Sequence& sequence) override;

 private:
  std::unordered_map<RequestId, SequenceMatcher> own_;
  SuffixIndex finished_;
};

}  // namespace fathom::engine
