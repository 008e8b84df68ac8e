// The pages of one kind of layer: reference counts, free lists, and which pages hold a cached block. A free
// page keeps its block until it is allocated again. Pages without a block go first; then an eviction policy
// chooses:
//
//   lru        the least recently used
//   frequency  of the blocks that were never found again the least recently used; where all were, of these.
//              What is read once (a scan) then cannot evict what is read again and again
//   adaptive   Adaptive Replacement Cache (Megiddo and Modha, FAST 2003): the pool remembers the hashes of
//              evicted blocks, apart for those used once and those found again (ghost lists). A block that is
//              computed again although its ghost was of the first list says that blocks used once got too few
//              pages, one of the second that they got too many; their share moves accordingly
#pragma once

#include <array>
#include <cstddef>
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

struct LowBits {
  size_t operator()(const BlockHash& hash) const { return hash.low; }
};

enum class EvictionPolicy { lru, frequency, adaptive };

// The hashes of the last blocks that were evicted, at most `capacity`.
class GhostList {
 public:
  explicit GhostList(int64_t capacity) : ring_(static_cast<size_t>(capacity)) {}

  int64_t size() const { return static_cast<int64_t>(at_.size()); }
  void add(const BlockHash& hash);     // forgets the oldest where it is full
  bool remove(const BlockHash& hash);  // whether it was there

 private:
  std::vector<BlockHash> ring_;
  size_t next_ = 0;
  std::unordered_map<BlockHash, size_t, LowBits> at_;  // in the ring
};

class BlockPool {
 public:
  explicit BlockPool(int64_t pages, EvictionPolicy policy = EvictionPolicy::lru);

  int64_t pages() const { return static_cast<int64_t>(state_.size()); }
  int64_t free_pages() const { return free_; }
  int64_t forgotten() const { return forgotten_; }  // cached blocks whose pages were allocated again
  int ref_count(Page page) const { return state_[static_cast<size_t>(page)].ref_count; }

  // Returns a page with one reference and without a block. Precondition: free_pages() > 0.
  Page allocate();
  void add_ref(Page page);
  void release(Page page);

  // Records that `page`, which has a reference, holds this block. Does nothing where a page holds it already.
  void set_hash(Page page, const BlockHash& hash);
  // No page holds a block from now on, and none is remembered as evicted.
  void reset_prefix_cache();
  std::optional<Page> find(const BlockHash& hash) const;
  // Adaptive: so many free pages belong to blocks that were used once, rather than to those found again.
  int64_t target_once() const { return target_once_; }

 private:
  // Of free pages: those whose block was used once, and all others; and those found again.
  enum Ring { kOnce, kAgain };
  struct State {
    int ref_count = 0;
    Ring ring     = kOnce;  // that it belongs to when it is free
    std::optional<BlockHash> hash;
  };
  struct Link {
    Page before, after;
  };

  Page head(Ring ring) const { return static_cast<Page>(pages()) + ring; }
  Page first(Ring ring) const { return links_[static_cast<size_t>(head(ring))].after; }
  void insert(Page page, Page after);
  void unlink(Page page);
  Page page_to_evict() const;
  void learn_from_ghosts(State& state);

  EvictionPolicy policy_;
  std::vector<State> state_;
  // Two rings of free pages, in each the next one to allocate first. The last two elements are their heads.
  std::vector<Link> links_;
  std::array<int64_t, 2> free_in_{};  // in each ring
  std::array<GhostList, 2> ghosts_;
  int64_t free_ = 0, forgotten_ = 0, target_once_ = 0;
  std::unordered_map<BlockHash, Page, LowBits> cached_;
};

}  // namespace fathom::engine
