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
      give_back_(options.give_back),
      hash_seed_(options.hash_seed),
      pools_{PagePool(options.pages[kFull]), PagePool(options.pages[kWindow])} {
  FATHOM_EXPECT(page_size_ > 0, "a page holds at least one token");
}

int64_t BlockManager::reach(int group, int64_t b) const {
  return group == kFull ? b : std::min(b, blocks(std::max<int64_t>(window_ - 1, 0)));
}

// A chain: each block's hash is of the hash before it, and of its tokens. The first one is of the salt.
void BlockManager::hash(SequencePages& pages, std::span<const TokenId> tokens, int64_t blocks,
                        std::string_view salt) const {
  for (auto b = static_cast<int64_t>(pages.hashes.size()); b < blocks; ++b) {
    const XXH128_hash_t before = b == 0 ? XXH3_128bits_withSeed(salt.data(), salt.size(), hash_seed_)
                                        : XXH128_hash_t{pages.hashes.back().low, pages.hashes.back().high};
    const auto block = tokens.subspan(static_cast<size_t>(b * page_size_), static_cast<size_t>(page_size_));
    const XXH128_hash_t own =
        XXH3_128bits_withSeed(block.data(), block.size_bytes(), before.low64 ^ hash_seed_);
    const uint64_t both[] = {before.low64, before.high64, own.low64, own.high64};
    const XXH128_hash_t h = XXH3_128bits_withSeed(both, sizeof both, hash_seed_);
    pages.hashes.push_back({.low = h.low64, .high = h.high64});
  }
}

int64_t BlockManager::adopt(SequencePages& pages, std::span<const TokenId> tokens, std::string_view salt) {
  FATHOM_EXPECT(pages.runs[kFull].pages.empty() && pages.runs[kWindow].pages.empty(),
                "a sequence that has pages adopts none");
  if (!prefix_cache_) return 0;
  const int64_t most = (static_cast<int64_t>(tokens.size()) - 1) / page_size_;
  hash(pages, tokens, most, salt);

  int64_t best = 0;
  std::array<int64_t, kGroups> run{};  // blocks held without a gap, up to block b
  for (int64_t b = 0; b < most; ++b) {
    const PrefixHash& name = pages.hashes[static_cast<size_t>(b)];
    bool held              = true;
    for (int group = 0; group < kGroups; ++group) {
      run[group] = pools_[group].pages() == 0 || pools_[group].find(name) ? run[group] + 1 : 0;
      held       = held && run[group] >= reach(group, b + 1);
    }
    if (run[kFull] == 0) break;
    if (held) best = b + 1;
  }
  for (int group = 0; group < kGroups; ++group) {
    PagePool& pool      = pools_[group];
    auto& [held, first] = pages.runs[group];
    if (pool.pages() == 0) continue;
    first = best - reach(group, best);
    held.assign(static_cast<size_t>(best), -1);
    for (int64_t b = first; b < best; ++b) {
      const Page page              = *pool.find(pages.hashes[static_cast<size_t>(b)]);
      held[static_cast<size_t>(b)] = page;
      pool.share(page);
    }
  }
  pages.hashes.resize(static_cast<size_t>(best));  // the others' pages get theirs when they are computed
  return best * page_size_;
}

int64_t BlockManager::room(const SequencePages& pages) const {
  int64_t blocks = std::numeric_limits<int64_t>::max() / page_size_;
  for (int group = 0; group < kGroups; ++group)
    if (pools_[group].pages() > 0)
      blocks =
          std::min(blocks, static_cast<int64_t>(pages.runs[group].pages.size()) + pools_[group].free_pages());
  return blocks * page_size_;
}

bool BlockManager::could_reserve(const SequencePages& pages, int64_t end) const { return end <= room(pages); }

bool BlockManager::could_hold(const SequencePages& pages, int64_t end) const {
  for (int group = 0; group < kGroups; ++group) {
    const auto& [held, first] = pages.runs[group];
    const int64_t own         = static_cast<int64_t>(held.size()) - first;
    const int64_t wanted =
        group == kWindow && give_back_ ? std::min(blocks(end), blocks(window_) + 1) : blocks(end);
    if (pools_[group].pages() > 0 && wanted - own > pools_[group].free_pages()) return false;
  }
  return true;
}

bool BlockManager::reserve(SequencePages& pages, int64_t end) {
  if (!could_reserve(pages, end)) return false;
  for (int group = 0; group < kGroups; ++group) {
    auto& held = pages.runs[group].pages;
    while (pools_[group].pages() > 0 && static_cast<int64_t>(held.size()) < blocks(end))
      held.push_back(pools_[group].take());
  }
  return true;
}

void BlockManager::commit(SequencePages& pages, std::span<const TokenId> tokens, int64_t computed,
                          std::string_view salt) {
  const int64_t whole = computed / page_size_;
  if (prefix_cache_) {
    const auto named = static_cast<int64_t>(pages.hashes.size());
    hash(pages, tokens, whole, salt);
    for (int64_t b = named; b < whole; ++b)
      for (int group = 0; group < kGroups; ++group)
        if (pools_[group].pages() > 0)
          pools_[group].name(pages.runs[group].pages[static_cast<size_t>(b)],
                             pages.hashes[static_cast<size_t>(b)]);
  }
  if (!give_back_ || pools_[kWindow].pages() == 0) return;
  auto& [held, first]  = pages.runs[kWindow];
  const int64_t wanted = std::max<int64_t>(computed - window_ + 1, 0) / page_size_;
  for (; first < wanted; ++first) {
    Page& page = held[static_cast<size_t>(first)];
    pools_[kWindow].release(page);
    page = -1;
  }
}

void BlockManager::release(SequencePages& pages) {
  for (int group = 0; group < kGroups; ++group) {
    // The last first: of a prefix that is in nobody's use, the end goes before the beginning.
    const auto& [held, first] = pages.runs[group];
    for (auto b = static_cast<int64_t>(held.size()); b-- > first;)
      pools_[group].release(held[static_cast<size_t>(b)]);
  }
  pages = {};
}

int64_t BlockManager::pages_in_use() const {
  int64_t used = 0;
  for (const PagePool& pool : pools_) used += pool.pages() - pool.free_pages();
  return used;
}

}  // namespace fathom::engine
