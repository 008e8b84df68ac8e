// The pages of one kind of layer: reference counts, a free list, and which pages hold a cached block. A free
// page keeps its block until it is allocated again: pages without a block go first, then least recently used.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace fathom::engine {

using Page = int32_t;

// Hash of a block of tokens and all blocks before it.
struct BlockHash {
  uint64_t low = 0, high = 0;
  bool operator==(const BlockHash&) const = default;
};

class BlockPool {
 public:
  explicit BlockPool(int64_t pages);

  int64_t pages() const { return static_cast<int64_t>(links_.size()) - 1; }
  int64_t free_pages() const { return free_; }
  int64_t forgotten() const { return forgotten_; }  // cached blocks whose pages were allocated again
  int ref_count(Page page) const { return state_[static_cast<size_t>(page)].ref_count; }

  // Returns a page with one reference and without a block. Precondition: free_pages() > 0.
  Page allocate();
  void add_ref(Page page);
  void release(Page page);

  // Records that `page`, which has a reference, holds this block. Does nothing where another page holds it
  // already.
  void set_hash(Page page, const BlockHash& hash);
  std::optional<Page> find(const BlockHash& hash) const;

 private:
  struct State {
    int ref_count = 0;
    std::optional<BlockHash> hash;
  };
  struct Link {
    Page before, after;
  };
  struct LowBits {
    size_t operator()(const BlockHash& hash) const { return hash.low; }
  };

  void insert(Page page, Page after);
  void unlink(Page page);

  std::vector<State> state_;
  // A ring of the free pages, the next one to allocate first. The last element is the ring's head.
  std::vector<Link> links_;
  int64_t free_ = 0, forgotten_ = 0;
  std::unordered_map<BlockHash, Page, LowBits> cached_;
};

}  // namespace fathom::engine
