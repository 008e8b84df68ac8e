#include "engine/block_manager.h"

#include <algorithm>
#include <limits>

#include "core/expect.h"

namespace fathom::engine {

using model::TokenId;

BlockManager::BlockManager(const Options& options)
    : page_size_(options.page_size),
      window_(options.window),
      prefix_cache_(options.prefix_cache),
      free_out_of_window_(options.free_out_of_window),
      hash_seed_(options.hash_seed),
      pools_{BlockPool(options.pages[kFull], options.eviction),
             BlockPool(options.pages[kWindow], options.eviction)} {
  FATHOM_EXPECT(page_size_ > 0, "a page holds at least one token");
}

int64_t BlockManager::reach(int kind, int64_t b) const {
  return kind == kFull ? b : std::min(b, blocks(std::max<int64_t>(window_ - 1, 0)));
}

void BlockManager::hash(SequencePages& pages, std::span<const TokenId> tokens, int64_t blocks,
                        std::string_view salt) const {
  extend_block_hashes(pages.block_hashes, tokens, blocks, page_size_, salt, hash_seed_);
}

std::optional<Page> BlockManager::find(int kind, const BlockHash& hash,
                                       const std::optional<SchedulingOrder>& order) const {
  if (const auto cached = pools_[kind].find(hash)) return cached;
  if (!order) return {};
  const auto planned = planned_.find(hash);
  if (planned == planned_.end() || planned->second.order >= *order) return {};
  return planned->second.pages[kind];
}

int64_t BlockManager::longest_prefix(int64_t blocks, const IsBlock& held) const {
  int64_t best = 0;
  std::array<int64_t, kKvKinds> run{};  // held blocks without a gap, up to block b
  for (int64_t b = 0; b < blocks; ++b) {
    bool all = true;
    for (const KvKind kind : {kFull, kWindow}) {
      run[kind] = pools_[kind].pages() == 0 || held(kind, b) ? run[kind] + 1 : 0;
      all       = all && run[kind] >= reach(kind, b + 1);
    }
    if (run[kFull] == 0) break;
    if (all) best = b + 1;
  }
  return best;
}

int64_t BlockManager::cached_prefix(std::span<const TokenId> tokens, std::string_view salt,
                                    const IsBlock& more) const {
  if (!prefix_cache_) return 0;
  SequencePages pages;
  const int64_t blocks = prefix_blocks(static_cast<int64_t>(tokens.size()));
  hash(pages, tokens, blocks, salt);
  return page_size_ * longest_prefix(blocks, [&](KvKind kind, int64_t b) {
           return pools_[kind].find(pages.block_hashes[static_cast<size_t>(b)]) || (more && more(kind, b));
         });
}

std::vector<std::optional<Page>> BlockManager::cached_pages(std::span<const TokenId> tokens,
                                                            std::string_view salt,
                                                            std::span<const KvBlock> blocks) const {
  SequencePages hashed;
  hash(hashed, tokens, static_cast<int64_t>(tokens.size()) / page_size_, salt);
  std::vector<std::optional<Page>> pages;
  for (const auto& [kind, block, bytes, owner] : blocks)
    pages.push_back(pools_[kind].find(hashed.block_hashes.at(static_cast<size_t>(block))));
  return pages;
}

std::vector<KvBlock> BlockManager::missing_blocks(std::span<const TokenId> tokens,
                                                  std::string_view salt) const {
  const int64_t prefix = prefix_blocks(static_cast<int64_t>(tokens.size()));
  SequencePages pages;
  hash(pages, tokens, prefix, salt);
  std::vector<KvBlock> missing;
  for (int64_t b = 0; b < prefix; ++b)
    for (const KvKind kind : {kFull, kWindow})
      if (prefix_needs(kind, b, prefix) && !pools_[kind].find(pages.block_hashes[static_cast<size_t>(b)]))
        missing.push_back({.kind = kind, .block = b, .bytes = {}});
  return missing;
}

bool BlockManager::insert_prefix(std::span<const TokenId> tokens, std::string_view salt,
                                 const std::function<void(KvKind, int64_t, Page)>& fill) {
  if (!prefix_cache_) return false;
  const int64_t prefix = prefix_blocks(static_cast<int64_t>(tokens.size()));
  SequencePages hashed;
  hash(hashed, tokens, prefix, salt);
  // Blocks that are cached get a reference first, lest the new ones evict them.
  std::array<std::vector<std::pair<int64_t, std::optional<Page>>>, kKvKinds> blocks;
  bool room = true;
  for (const KvKind kind : {kFull, kWindow}) {
    int64_t lacking = 0;
    for (int64_t b = 0; b < prefix; ++b)
      if (prefix_needs(kind, b, prefix)) {
        const auto page = pools_[kind].find(hashed.block_hashes[static_cast<size_t>(b)]);
        if (page) pools_[kind].add_ref(*page);
        lacking += page ? 0 : 1;
        blocks[kind].emplace_back(b, page);
      }
    room = room && lacking <= pools_[kind].free_pages();
  }
  for (const KvKind kind : {kFull, kWindow}) {
    for (auto& [b, page] : blocks[kind])
      if (room && !page) {
        page = pools_[kind].allocate();
        fill(kind, b, *page);
        pools_[kind].set_hash(*page, hashed.block_hashes[static_cast<size_t>(b)]);
      }
    for (auto block = blocks[kind].rbegin(); block != blocks[kind].rend(); ++block)  // as in free()
      if (block->second) pools_[kind].release(*block->second);
  }
  return room;
}

int64_t BlockManager::match_prefix(SequencePages& pages, std::span<const TokenId> tokens,
                                   std::string_view salt, std::optional<SchedulingOrder> order) {
  FATHOM_EXPECT(pages.block_tables[kFull].pages.empty() && pages.block_tables[kWindow].pages.empty(),
                "a sequence that has pages adopts none");
  if (!prefix_cache_) return 0;
  hash(pages, tokens, prefix_blocks(static_cast<int64_t>(tokens.size())), salt);
  const int64_t best = longest_prefix(std::ssize(pages.block_hashes), [&](KvKind kind, int64_t b) {
    return find(kind, pages.block_hashes[static_cast<size_t>(b)], order).has_value();
  });
  pages.committed = pages.planned = best;
  for (int kind = 0; kind < kKvKinds; ++kind) {
    BlockPool& pool     = pools_[kind];
    auto& [held, first] = pages.block_tables[kind];
    if (pool.pages() == 0) continue;
    first = best - reach(kind, best);
    held.assign(static_cast<size_t>(best), -1);
    for (int64_t b = first; b < best; ++b) {
      const BlockHash& hash        = pages.block_hashes[static_cast<size_t>(b)];
      const Page page              = *find(kind, hash, order);
      held[static_cast<size_t>(b)] = page;
      pool.add_ref(page);
      if (!pool.find(hash)) pages.committed = std::min(pages.committed, b);
    }
  }
  pages.holds_planned = pages.committed < best;
  return best * page_size_;
}

void BlockManager::plan(SequencePages& pages, std::span<const TokenId> tokens, int64_t end,
                        std::string_view salt, SchedulingOrder order) {
  if (!prefix_cache_ || pages.uncacheable) return;
  const int64_t blocks = std::min(end, static_cast<int64_t>(tokens.size())) / page_size_;
  hash(pages, tokens, blocks, salt);
  for (; pages.planned < blocks; ++pages.planned) {
    const auto b = static_cast<size_t>(pages.planned);
    PlannedBlock planned{.by = &pages, .order = order, .pages = {-1, -1}};
    for (int kind = 0; kind < kKvKinds; ++kind)
      if (pools_[kind].pages() > 0) planned.pages[kind] = pages.block_tables[kind].pages[b];
    planned_.try_emplace(pages.block_hashes[b], planned);
  }
}

void BlockManager::forget_plan(const SequencePages& pages, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; ++b) {
    const auto planned = planned_.find(pages.block_hashes[static_cast<size_t>(b)]);
    if (planned != planned_.end() && planned->second.by == &pages) planned_.erase(planned);
  }
}

int64_t BlockManager::max_allocatable(const SequencePages& pages) const {
  int64_t blocks = std::numeric_limits<int64_t>::max() / page_size_;
  for (int kind = 0; kind < kKvKinds; ++kind)
    if (pools_[kind].pages() > 0)
      blocks = std::min(
          blocks, static_cast<int64_t>(pages.block_tables[kind].pages.size()) + pools_[kind].free_pages());
  return blocks * page_size_;
}

bool BlockManager::can_allocate(const SequencePages& pages, int64_t end) const {
  return end <= max_allocatable(pages);
}

bool BlockManager::can_hold(const SequencePages& pages, int64_t end) const {
  for (int kind = 0; kind < kKvKinds; ++kind) {
    const auto& [held, first] = pages.block_tables[kind];
    const int64_t own         = static_cast<int64_t>(held.size()) - first;
    const int64_t needed =
        kind == kWindow && free_out_of_window_ ? std::min(blocks(end), blocks(window_) + 1) : blocks(end);
    if (pools_[kind].pages() > 0 && needed - own > pools_[kind].free_pages()) return false;
  }
  return true;
}

bool BlockManager::allocate(SequencePages& pages, int64_t end) {
  if (!can_allocate(pages, end)) return false;
  for (int kind = 0; kind < kKvKinds; ++kind) {
    auto& held = pages.block_tables[kind].pages;
    while (pools_[kind].pages() > 0 && static_cast<int64_t>(held.size()) < blocks(end))
      held.push_back(pools_[kind].allocate());
  }
  return true;
}

void BlockManager::commit(SequencePages& pages, std::span<const TokenId> tokens, int64_t computed,
                          std::string_view salt) {
  const int64_t full_blocks = computed / page_size_;
  if (prefix_cache_ && !pages.uncacheable) {
    hash(pages, tokens, full_blocks, salt);
    forget_plan(pages, pages.committed, std::min(full_blocks, pages.planned));
    // The blocks that it found planned too: their sequence may have gone before its own commit().
    for (; pages.committed < full_blocks; ++pages.committed)
      for (int kind = 0; kind < kKvKinds; ++kind)
        if (pools_[kind].pages() > 0 && pages.committed >= pages.block_tables[kind].first)
          pools_[kind].set_hash(pages.block_tables[kind].pages[static_cast<size_t>(pages.committed)],
                                pages.block_hashes[static_cast<size_t>(pages.committed)]);
    pages.planned       = std::max(pages.planned, pages.committed);
    pages.holds_planned = false;
  }
  if (!free_out_of_window_ || pools_[kWindow].pages() == 0) return;
  auto& [held, first]       = pages.block_tables[kWindow];
  const int64_t needed_from = std::max<int64_t>(computed - window_ + 1, 0) / page_size_;
  for (; first < needed_from; ++first) {
    Page& page = held[static_cast<size_t>(first)];
    pools_[kWindow].release(page);
    page = -1;
  }
}

void BlockManager::reset_prefix_cache() {
  FATHOM_EXPECT(planned_.empty(), "the prefix cache is reset between two steps");
  for (BlockPool& pool : pools_) pool.reset_prefix_cache();
}

void BlockManager::free(SequencePages& pages) {
  forget_plan(pages, pages.committed, pages.planned);
  for (int kind = 0; kind < kKvKinds; ++kind) {
    // The last page first, so that the end of an unused prefix is evicted before its beginning.
    const auto& [held, first] = pages.block_tables[kind];
    for (auto b = static_cast<int64_t>(held.size()); b-- > first;)
      pools_[kind].release(held[static_cast<size_t>(b)]);
  }
  pages = {};
}

int64_t BlockManager::pages_in_use() const {
  int64_t used = 0;
  for (const BlockPool& pool : pools_) used += pool.pages() - pool.free_pages();
  return used;
}

}  // namespace fathom::engine
