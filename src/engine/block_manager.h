// Which pages hold the keys and values of which sequence, for both kinds of layers: those that see all, and
// those that see a window back and keep no more than that.
//
// A block is the tokens of one page. Blocks are named by a hash of their tokens and all before them, so that
// equal beginnings are found again. A prefix can be taken over where every kind of layer still holds what the
// next position reaches: all blocks, or those in the window.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/page_pool.h"
#include "model/tokenizer.h"

namespace fathom::engine {

// The kinds of layers.
enum Group { kFull, kWindow };
inline constexpr int kGroups = 2;

// The pages of one sequence. Only a BlockManager changes it.
struct SequencePages {
  struct Run {
    std::vector<Page> pages;  // of each block from the first on; those before `first` are given back
    int64_t first = 0;
  };
  std::array<Run, kGroups> runs;
  std::vector<PrefixHash> hashes;  // of the blocks that are whole
};

class BlockManager {
 public:
  struct Options {
    std::array<int64_t, kGroups> pages{};
    int64_t page_size  = 16;
    int64_t window     = 0;  // positions that sliding layers see, their own among them
    bool prefix_cache  = true;
    bool give_back     = true;  // pages behind the window
    uint64_t hash_seed = 0;
  };
  explicit BlockManager(const Options& options);

  // The longest known beginning of `tokens` that leaves at least one of them to compute becomes that of
  // `pages`, which has none yet. Returns how many tokens that is.
  int64_t adopt(SequencePages& pages, std::span<const model::TokenId> tokens, std::string_view salt);

  // Pages for positions before `end`, or, where there are too few, none and false.
  bool reserve(SequencePages& pages, int64_t end);
  // Whether reserve() would.
  bool could_reserve(const SequencePages& pages, int64_t end) const;
  // Up to which position it would.
  int64_t room(const SequencePages& pages) const;
  // Whether a sequence could come to `end`, piece by piece, as pages behind its window are given back.
  bool could_hold(const SequencePages& pages, int64_t end) const;

  // What lies at positions before `computed` is final. Whole blocks of it get their names, and pages behind
  // the window of position `computed` are given back.
  void commit(SequencePages& pages, std::span<const model::TokenId> tokens, int64_t computed,
              std::string_view salt);

  // Gives all pages back; `pages` is as new.
  void release(SequencePages& pages);

  int64_t page_size() const { return page_size_; }
  int64_t blocks(int64_t tokens) const { return (tokens + page_size_ - 1) / page_size_; }
  const PagePool& pool(Group group) const { return pools_[group]; }
  int64_t pages() const { return pools_[kFull].pages() + pools_[kWindow].pages(); }
  int64_t pages_in_use() const;

 private:
  void hash(SequencePages& pages, std::span<const model::TokenId> tokens, int64_t blocks,
            std::string_view salt) const;
  // How many of the blocks before block b the group must hold for a sequence that goes on at b.
  int64_t reach(int group, int64_t b) const;

  int64_t page_size_, window_;
  bool prefix_cache_, give_back_;
  uint64_t hash_seed_;
  std::array<PagePool, kGroups> pools_;
};

}  // namespace fathom::engine
