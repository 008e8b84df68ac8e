// Byte-pair encoding of one piece: merges the adjacent pair of lowest rank first, of equal ranks the
// leftmost.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace fathom::model {

using TokenId = int32_t;

struct Merge {
  int32_t rank   = 0;  // lower merges earlier
  TokenId merged = 0;
};

class MergeTable {
 public:
  void insert(TokenId left, TokenId right, Merge merge) { merges_.insert_or_assign(key(left, right), merge); }
  const Merge* find(TokenId left, TokenId right) const {
    const auto found = merges_.find(key(left, right));
    return found == merges_.end() ? nullptr : &found->second;
  }
  size_t size() const { return merges_.size(); }

 private:
  static uint64_t key(TokenId left, TokenId right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  std::unordered_map<uint64_t, Merge> merges_;
};

// Keeps its buffers between pieces. Used by one thread at a time.
class BpeMerger {
 public:
  explicit BpeMerger(const MergeTable& merges) : merges_(merges) {}

  // Merges `piece` until no pair is in the table and appends the result to `out`. O(n log n) for n tokens: a
  // heap of candidate pairs over a linked list. A pair that no longer exists is dropped when it is popped.
  // Precondition: fewer than 2^31 tokens.
  void merge(std::span<const TokenId> piece, std::vector<TokenId>& out);

  // Candidates popped from the heap so far: at most 3 for each token.
  int64_t steps() const { return steps_; }

 private:
  struct Node {
    TokenId id       = 0;            // -1 once merged into the node before it
    int32_t previous = 0, next = 0;  // -1 at the ends
  };
  void propose(int32_t left);

  const MergeTable& merges_;
  std::vector<Node> nodes_;
  std::vector<uint64_t> heap_;  // rank, then position of the left node
  int64_t steps_ = 0;
};

}  // namespace fathom::model
