// The two indices of the suffix proposer: what followed an n-gram earlier in one sequence, and what mostly
// followed it in many.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/proposer.h"
#include "model/tokenizer.h"

namespace fathom::engine {

// Longest match of a sequence's suffix with its own earlier tokens, by hash chains as in LZ77: positions
// with the same last two tokens are linked from the latest to the earliest. A token costs one step of a chain
// to add, and at most kCandidates comparisons to look up, whatever the length of the sequence.
class SequenceMatcher {
 public:
  static constexpr int64_t kCandidates = 32, kLongest = 24;

  // The sequence's tokens so far; those of the last call come first.
  void extend(std::span<const model::TokenId> tokens);

  struct Match {
    int64_t end    = 0;  // one past the earlier occurrence
    int64_t length = 0;  // 0: none, else 2 to kLongest
  };
  // The longest match of the last tokens, the latest of equally long ones, among the latest kCandidates.
  Match longest(std::span<const model::TokenId> tokens) const;

 private:
  // `end` of a pair of tokens is one past it.
  std::unordered_map<uint64_t, int32_t> latest_;  // by pair: the largest end
  std::vector<int32_t> previous_ = {-1, -1};      // [end]: the end of the same pair before; -1: none
};

// Counts what followed each n-gram of at most `depth` tokens: a suffix trie whose nodes are found by a hash
// of their path. It holds at most `max_nodes` nodes, in two generations: when the young one has half of them
// it becomes the old one, whose nodes are forgotten.
class SuffixIndex {
 public:
  SuffixIndex(int64_t depth, int64_t max_nodes);

  // Adds tokens[first, end), each after the contexts that end before it.
  void add(std::span<const model::TokenId> tokens, int64_t first);
  // The likeliest continuation of `tokens`, at most `count` tokens and at most as many as the context that
  // matches, while the product of its shares is at least kLeastShare.
  Draft continue_from(std::span<const model::TokenId> tokens, int64_t count) const;

  static constexpr double kLeastShare = 0.1;
  int64_t nodes() const { return young_.used + old_.used; }
  int64_t bytes() const {
    return static_cast<int64_t>((young_.slots.size() + old_.slots.size()) * sizeof(Node));
  }

 private:
  struct Node {
    uint64_t key             = 0;   // a hash of its n-gram; 0: an empty slot
    uint32_t count           = 0;   // occurrences of the n-gram
    model::TokenId likeliest = -1;  // token after it, the latest of equally frequent ones; -1: none
    uint32_t likeliest_count = 0;
  };
  struct Generation {
    std::vector<Node> slots = std::vector<Node>(256);  // open addressing; a power of two, at most half full
    int64_t used            = 0;

    const Node* find(uint64_t key) const;  // null: none
    Node& insert(uint64_t key);
    void reserve(int64_t more);
  };
  struct Context {
    const Node* node = nullptr;
    int64_t length   = 0;
  };
  // The longest n-gram of `keys` that something followed.
  static Context longest_context(const Generation& generation, std::span<const uint64_t> keys);

  const int64_t depth_, generation_nodes_;
  Generation young_, old_;
};

}  // namespace fathom::engine
