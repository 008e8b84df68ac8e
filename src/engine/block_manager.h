// Allocates the pages of the KV cache to sequences, for both kinds of layers: full attention, and a sliding
// window, which keeps no more pages than the window needs.
//
// A block is the tokens of one page. A block is identified by a hash of its tokens and all tokens before it,
// so that equal prefixes are found again. A cached prefix can be reused where every kind of layer still holds
// the pages that the next position attends to: all blocks, or those in the window.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/block_pool.h"
#include "model/tokenizer.h"

namespace fathom::engine {

// The kinds of layers; each has a page pool and block tables of its own.
enum KvKind { kFull, kWindow };
inline constexpr int kKvKinds = 2;

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
  };
  explicit BlockManager(const Options& options);

  // Assigns the longest cached prefix of `tokens` to `pages`, which must be empty. At least one token is left
  // to compute. Returns the number of tokens of the prefix.
  int64_t match_prefix(SequencePages& pages, std::span<const model::TokenId> tokens, std::string_view salt);

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
  // How many of the blocks before block b a sequence that continues at b attends to.
  int64_t reach(int kind, int64_t b) const;

  int64_t page_size_, window_;
  bool prefix_cache_, free_out_of_window_;
  uint64_t hash_seed_;
  std::array<BlockPool, kKvKinds> pools_;
};

}  // namespace fathom::engine
