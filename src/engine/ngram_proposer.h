// Drafts without a draft model: the tokens that followed an earlier occurrence of the sequence's last tokens
// (prompt lookup decoding; Saxena 2023).
#pragma once

#include <cstdint>
#include <span>

#include "engine/proposer.h"
#include "model/tokenizer.h"

namespace fathom::engine {

struct NgramMatch {
  std::span<const model::TokenId> following;  // a view of `tokens`; empty where there is no match
  int64_t length = 0;                         // tokens that match
};

// Finds the longest suffix of `tokens`, of `shortest` to `longest` tokens, that occurred before, and returns
// at most `count` tokens that followed its latest earlier occurrence.
NgramMatch ngram_match(std::span<const model::TokenId> tokens, int64_t count, int64_t shortest = 2,
                       int64_t longest = 4);

class NgramProposer final : public Proposer {
 public:
  NgramProposer(int64_t shortest, int64_t longest) : shortest_(shortest), longest_(longest) {}
  Draft propose(const Sequence& sequence, int64_t count) override;

 private:
  const int64_t shortest_, longest_;
};

}  // namespace fathom::engine
