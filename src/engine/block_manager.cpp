#include "engine/block_manager.h"

#include <xxhash.h>

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
      pools_{BlockPool(options.pages[kFull]), BlockPool(options.pages[kWindow])} {
  FATHOM_EXPECT(page_size_ > 0, "a page holds at least one token");
}

int64_t BlockManager::reach(int kind, int64_t b) const {
  return kind == kFull ? b : std::min(b, blocks(std::max<int64_t>(window_ - 1, 0)));
}

// A hash chain: a block's hash covers the hash before it and its own tokens. The chain starts with the salt.
void BlockManager::hash(SequencePages& pages, std::span<const TokenId> tokens, int64_t blocks,
                        std::string_view salt) const {
  for (auto b = static_cast<int64_t>(pages.block_hashes.size()); b < blocks; ++b) {
    const XXH128_hash_t before =
        b == 0 ? XXH3_128bits_withSeed(salt.data(), salt.size(), hash_seed_)
               : XXH128_hash_t{pages.block_hashes.back().low, pages.block_hashes.back().high};
    const auto block = tokens.subspan(static_cast<size_t>(b * page_size_), static_cast<size_t>(page_size_));
    const XXH128_hash_t own =
        XXH3_128bits_withSeed(block.data(), block.size_bytes(), before.low64 ^ hash_seed_);
    const uint64_t both[] = {before.low64, before.high64, own.low64, own.high64};
    const XXH128_hash_t h = XXH3_128bits_withSeed(both, sizeof both, hash_seed_);
    pages.block_hashes.push_back({.low = h.low64, .high = h.high64});
  }
}

int64_t BlockManager::match_prefix(SequencePages& pages, std::span<const TokenId> tokens,
                                   std::string_view salt) {
  FATHOM_EXPECT(pages.block_tables[kFull].pages.empty() && pages.block_tables[kWindow].pages.empty(),
                "a sequence that has pages adopts none");
  if (!prefix_cache_) return 0;
  const int64_t max_blocks = (static_cast<int64_t>(tokens.size()) - 1) / page_size_;
  hash(pages, tokens, max_blocks, salt);

  int64_t best = 0;
  std::array<int64_t, kKvKinds> run{};  // cached blocks without a gap, up to block b
  for (int64_t b = 0; b < max_blocks; ++b) {
    const BlockHash& hash = pages.block_hashes[static_cast<size_t>(b)];
    bool held             = true;
    for (int kind = 0; kind < kKvKinds; ++kind) {
      run[kind] = pools_[kind].pages() == 0 || pools_[kind].find(hash) ? run[kind] + 1 : 0;
      held      = held && run[kind] >= reach(kind, b + 1);
    }
    if (run[kFull] == 0) break;
    if (held) best = b + 1;
  }
  for (int kind = 0; kind < kKvKinds; ++kind) {
    BlockPool& pool     = pools_[kind];
    auto& [held, first] = pages.block_tables[kind];
    if (pool.pages() == 0) continue;
    first = best - reach(kind, best);
    held.assign(static_cast<size_t>(best), -1);
    for (int64_t b = first; b < best; ++b) {
      const Page page              = *pool.find(pages.block_hashes[static_cast<size_t>(b)]);
      held[static_cast<size_t>(b)] = page;
      pool.add_ref(page);
    }
  }
  pages.block_hashes.resize(static_cast<size_t>(best));  // later blocks are hashed when they are computed
  return best * page_size_;
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
  if (prefix_cache_) {
    const auto hashed = static_cast<int64_t>(pages.block_hashes.size());
    hash(pages, tokens, full_blocks, salt);
    for (int64_t b = hashed; b < full_blocks; ++b)
      for (int kind = 0; kind < kKvKinds; ++kind)
        if (pools_[kind].pages() > 0)
          pools_[kind].set_hash(pages.block_tables[kind].pages[static_cast<size_t>(b)],
                                pages.block_hashes[static_cast<size_t>(b)]);
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

void BlockManager::free(SequencePages& pages) {
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
