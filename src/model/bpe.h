// Byte-pair encoding of one piece: merges the adjacent pair of lowest rank first, of equal ranks the
// leftmost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fathom::model {

using TokenId = int32_t;

struct Merge {
  int32_t rank   = 0;  // lower merges earlier
  TokenId merged = 0;
};

// Pairs of tokens and what they merge to: open addressing, at most half full. A tokenizer has half a million
// of them, and a node for each would cost more time than the rest of reading its file.
class MergeTable {
 public:
  void reserve(size_t size);  // no growth until there are so many
  // Replaces what is there. Ids are at least 0.
  void insert(TokenId left, TokenId right, Merge merge);
  const Merge* find(TokenId left, TokenId right) const {
    const Slot* slot = slots_.empty() ? nullptr : &slots_[place(key(left, right))];
    return slot && slot->key != kEmpty ? &slot->merge : nullptr;
  }
  size_t size() const { return size_; }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // the key of no pair: ids are at least 0
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge  = {};
  };
  static uint64_t key(TokenId left, TokenId right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  // The slot that has the key, or the empty one where it would go. The multiplier is 2^64 over the golden
  // ratio.
  size_t place(uint64_t key) const {
    size_t at = key * 0x9E3779B97F4A7C15u >> shift_;
    while (slots_[at].key != key && slots_[at].key != kEmpty) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  std::vector<Slot> slots_;  // a power of two
  int shift_   = 64;         // 64 - log2 of their number
  size_t size_ = 0;
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
