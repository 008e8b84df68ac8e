// Allocates the pages of the KV cache to sequences, for both kinds of layers: full attention, and a sliding
// window, which keeps no more pages than the window needs.
//
// A block is the tokens of one page. A block is identified by a hash of its tokens and all tokens before it,
// so that equal prefixes are found again. A cached prefix can be reused where every kind of layer still holds
// the pages that the next position attends to: all blocks, or those in the window.
//
// In-batch prefix caching: a block is found from the moment a step is planned that computes it. Whoever finds
// it is computed in the same step or a later one, and every layer of a step writes all its keys and values
// before it reads any. vLLM names blocks that early too. Such a block is a planned one until commit().
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/block_hash.h"
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
  std::vector<BlockHash> block_hashes;  // of the first full blocks, at least up to `planned`
  int64_t committed = 0;  // blocks before are computed, and cached unless another page holds the same
  int64_t planned   = 0;  // full blocks before are computed by steps planned so far
  // It found planned blocks, and no step of its own has ended since.
  bool holds_planned = false;
  // Its blocks are not what others would compute of the same tokens, so they are cached for nobody. Of a
  // sequence whose keys and values outlived reset_prefix_cache().
  bool uncacheable = false;
};

// Priority and request id. A sequence is scheduled before those of a higher order, and preempted after them.
using SchedulingOrder = std::pair<int, uint64_t>;

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
  // to compute. Returns the number of tokens of the prefix. With an order, blocks count that are planned by
  // sequences before it: they are not preempted while this one keeps its pages.
  int64_t match_prefix(SequencePages& pages, std::span<const model::TokenId> tokens, std::string_view salt,
                       std::optional<SchedulingOrder> order = {});
  // A step is planned that computes the positions before `end`, for which there are pages. match_prefix()
  // finds their full blocks from now on, until free() or commit(). `pages` must stay where they are.
  void plan(SequencePages& pages, std::span<const model::TokenId> tokens, int64_t end, std::string_view salt,
            SchedulingOrder order);

  // What match_prefix() would find; with `more`, if those blocks were cached too.
  using IsBlock = std::function<bool(KvKind, int64_t block)>;
  int64_t cached_prefix(std::span<const model::TokenId> tokens, std::string_view salt,
                        const IsBlock& more = {}) const;
  // The page of each block of `tokens` that is cached.
  std::vector<std::optional<Page>> cached_pages(std::span<const model::TokenId> tokens, std::string_view salt,
                                                std::span<const KvBlock> blocks) const;

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

  // Cached blocks are not found any more: other weights would compute others. Blocks that sequences hold stay
  // theirs; their pages must be `uncacheable` from now on, or be freed before the next plan(). Precondition:
  // no step is planned.
  void reset_prefix_cache();

  // Releases all pages and resets `pages`.
  void free(SequencePages& pages);

  int64_t page_size() const { return page_size_; }
  int64_t blocks(int64_t tokens) const { return (tokens + page_size_ - 1) / page_size_; }
  const BlockPool& pool(KvKind kind) const { return pools_[kind]; }
  int64_t pages() const { return pools_[kFull].pages() + pools_[kWindow].pages(); }
  int64_t pages_in_use() const;
  int64_t forgotten() const { return pools_[kFull].forgotten() + pools_[kWindow].forgotten(); }
  int64_t planned() const { return static_cast<int64_t>(planned_.size()); }  // blocks

 private:
  void hash(SequencePages& pages, std::span<const model::TokenId> tokens, int64_t blocks,
            std::string_view salt) const;
  // The page of a block that is cached, or planned by a sequence before `order`.
  std::optional<Page> find(int kind, const BlockHash& hash,
                           const std::optional<SchedulingOrder>& order) const;
  // The number of blocks of the longest prefix, of at most `blocks`, all of whose needed blocks are held.
  int64_t longest_prefix(int64_t blocks, const IsBlock& held) const;
  // Blocks from `begin` to `end` are computed, or will not be.
  void forget_plan(const SequencePages& pages, int64_t begin, int64_t end);
  // How many of the blocks before block b a sequence that continues at b attends to.
  int64_t reach(int kind, int64_t b) const;

  int64_t page_size_, window_;
  bool prefix_cache_, free_out_of_window_;
  uint64_t hash_seed_;
  std::array<BlockPool, kKvKinds> pools_;
  struct PlannedBlock {
    const SequencePages* by;
    SchedulingOrder order;
    std::array<Page, kKvKinds> pages;  // -1 where there are no such layers
  };
  std::unordered_map<BlockHash, PlannedBlock, LowBits> planned_;
};

}  // namespace fathom::engine
