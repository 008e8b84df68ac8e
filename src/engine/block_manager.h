// Allocates the pages of the KV cache to sequences, for both kinds of layers: full attention, and a sliding
// window, which keeps no more pages than the window needs.
//
// A block is the tokens of one page. A block is identified by a hash of its tokens and all tokens before it,
// so that equal prefixes are found again. A cached prefix can be reused where every kind of layer still holds
// the pages that the next position attends to: all blocks, or those in the window.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/block_pool.h"
#include "engine/kv_block.h"
#include "model/tokenizer.h"

namespace fathom::engine {

// The pages of one sequence for one kind of layer, by block. Blocks before `first` were freed and are -1.
struct BlockTable {
  std::vector<Page> pages;
  int64_t first = 0;
};

// The pages of one sequence. Only a BlockManager changes them.
struct SequencePages {
  std::array<BlockTable, kKvKinds> block_tables;
  std::vector<BlockHash> block_hashes;  // of the full blocks
};

class BlockManager {
 public:
  struct Options {
    std::array<int64_t, kKvKinds> pages{};
    int64_t page_size       = 16;  // tokens
    int64_t window          = 0;   // positions that sliding layers attend to, the query's own included
    bool prefix_cache       = true;
    bool free_out_of_window = true;
    uint64_t hash_seed      = 0;
    EvictionPolicy eviction = EvictionPolicy::lru;
  };
  explicit BlockManager(const Options& options);

  // Assigns the longest cached prefix of `tokens` to `pages`, which must be empty. At least one token is left
  // to compute. Returns the number of tokens of the prefix.
  int64_t match_prefix(SequencePages& pages, std::span<const model::TokenId> tokens, std::string_view salt);

  // What match_prefix() would find.
  int64_t cached_prefix(std::span<const model::TokenId> tokens, std::string_view salt) const;

  // For blocks that another engine has computed. A prefix is that of match_prefix(): it ends before the last
  // token. It needs all its blocks for full attention, and those that its end attends to for the window.
  int64_t prefix_blocks(int64_t tokens) const { return (tokens - 1) / page_size_; }
  bool prefix_needs(KvKind kind, int64_t block, int64_t prefix) const {
    return pools_[kind].pages() > 0 && block < prefix && block >= prefix - reach(kind, prefix);
  }
  // The blocks needed for the whole prefix that are not cached, without bytes.
  std::vector<KvBlock> missing_blocks(std::span<const model::TokenId> tokens, std::string_view salt) const;
  // Caches the whole prefix: `fill` is called with a page for each missing block. Where too few pages are
  // free it changes nothing and returns false.
  bool insert_prefix(std::span<const model::TokenId> tokens, std::string_view salt,
                     const std::function<void(KvKind, int64_t block, Page)>& fill);

  // Allocates pages for positions before `end`. Where too few are free, allocates none and returns false.
  bool allocate(SequencePages& pages, int64_t end);
  bool can_allocate(const SequencePages& pages, int64_t end) const;
  // The largest `end` for which allocate() succeeds.
  int64_t max_allocatable(const SequencePages& pages) const;
  // Whether a sequence could reach `end` chunk by chunk, while pages behind its window are freed.
  bool can_hold(const SequencePages& pages, int64_t end) const;

  // Positions before `computed` are final. Hashes their full blocks for the prefix cache and frees the pages
  // behind the window of position `computed`.
  void commit(SequencePages& pages, std::span<const model::TokenId> tokens, int64_t computed,
              std::string_view salt);

  // Releases all pages and resets `pages`.
  void free(SequencePages& pages);

  int64_t page_size() const { return page_size_; }
  int64_t blocks(int64_t tokens) const { return (tokens + page_size_ - 1) / page_size_; }
  const BlockPool& pool(KvKind kind) const { return pools_[kind]; }
  int64_t pages() const { return pools_[kFull].pages() + pools_[kWindow].pages(); }
  int64_t pages_in_use() const;
  int64_t forgotten() const { return pools_[kFull].forgotten() + pools_[kWindow].forgotten(); }

 private:
  void hash(SequencePages& pages, std::span<const model::TokenId> tokens, int64_t blocks,
            std::string_view salt) const;
  // The number of blocks of the longest cached prefix.
  int64_t longest_prefix(std::span<const BlockHash> hashes) const;
  // How many of the blocks before block b a sequence that continues at b attends to.
  int64_t reach(int kind, int64_t b) const;

  int64_t page_size_, window_;
  bool prefix_cache_, free_out_of_window_;
  uint64_t hash_seed_;
  std::array<BlockPool, kKvKinds> pools_;
};

}  // namespace fathom::engine
