#include "engine/block_manager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/rng.h"

namespace fathom::engine {
namespace {

using Tokens = std::vector<model::TokenId>;

Tokens counting(int64_t count, model::TokenId from = 0) {
  Tokens tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

// Allocates and commits all of `tokens` at once.
SequencePages computed(BlockManager& blocks, const Tokens& tokens, int64_t* hit = nullptr) {
  SequencePages pages;
  const int64_t found = blocks.match_prefix(pages, tokens, "");
  if (hit) *hit = found;
  EXPECT_TRUE(blocks.allocate(pages, static_cast<int64_t>(tokens.size())));
  blocks.commit(pages, tokens, static_cast<int64_t>(tokens.size()), "");
  return pages;
}

TEST(BlockPool, AllocatesPagesWithoutABlockFirstThenLeastRecentlyFreed) {
  BlockPool pool(4);
  const Page a = pool.allocate(), b = pool.allocate(), c = pool.allocate();
  pool.set_hash(a, {1, 1}), pool.set_hash(b, {2, 2});
  pool.release(b), pool.release(a), pool.release(c);
  EXPECT_EQ(pool.free_pages(), 4);
  EXPECT_EQ(pool.allocate(), c);  // without a block, and freed last
  pool.allocate();                // the fourth
  EXPECT_EQ(pool.find({2, 2}), b);
  EXPECT_EQ(pool.allocate(), b);
  EXPECT_FALSE(pool.find({2, 2}));
  EXPECT_EQ(pool.find({1, 1}), a);
  pool.add_ref(a);  // no longer free
  EXPECT_EQ(pool.free_pages(), 0);
  pool.add_ref(a);
  pool.release(a);
  EXPECT_EQ(pool.free_pages(), 0);
  pool.release(a);
  EXPECT_EQ(pool.free_pages(), 1);
}

// Uses a block as a sequence does: finds it, or computes it. Returns whether it was cached.
bool use(BlockPool& pool, uint64_t block) {
  const BlockHash hash{block, ~block};
  if (const auto page = pool.find(hash)) {
    pool.add_ref(*page);
    pool.release(*page);
    return true;
  }
  const Page page = pool.allocate();
  pool.set_hash(page, hash);
  pool.release(page);
  return false;
}

// The number of blocks of a trace that were cached.
int64_t hits(EvictionPolicy policy, int64_t pages, const std::vector<uint64_t>& trace) {
  BlockPool pool(pages, policy);
  int64_t count = 0;
  for (const uint64_t block : trace) count += use(pool, block);
  EXPECT_EQ(pool.free_pages(), pages);
  EXPECT_GE(pool.target_once(), 0);
  EXPECT_LE(pool.target_once(), pages);
  return count;
}

// The plain definition: the cached blocks, the least recently used first.
int64_t hits_of_lru(int64_t pages, const std::vector<uint64_t>& trace) {
  std::vector<uint64_t> cached;
  int64_t count = 0;
  for (const uint64_t block : trace) {
    const auto found = std::find(cached.begin(), cached.end(), block);
    if (found != cached.end()) {
      ++count;
      cached.erase(found);
    } else if (std::ssize(cached) == pages) {
      cached.erase(cached.begin());
    }
    cached.push_back(block);
  }
  return count;
}

std::vector<uint64_t> at_random(int64_t count, int64_t blocks, uint64_t seed) {
  std::vector<int64_t> drawn(static_cast<size_t>(count));
  fill_integers(drawn.data(), count, seed, 0, blocks);
  return {drawn.begin(), drawn.end()};
}

// Six blocks again and again, between scans of ten blocks that never come back, through ten pages.
std::vector<uint64_t> scans() {
  std::vector<uint64_t> trace;
  uint64_t fresh = 1000;
  for (int round = 0; round < 50; ++round) {
    for (int twice = 0; twice < (round == 0 ? 2 : 1); ++twice)
      for (uint64_t hot = 0; hot < 6; ++hot) trace.push_back(hot);
    for (int i = 0; i < 10; ++i) trace.push_back(fresh++);
  }
  return trace;
}

// Blocks in use change: each is used five times over a while and never again.
std::vector<uint64_t> drift() {
  std::vector<uint64_t> trace;
  for (uint64_t first = 0; first < 400; ++first)
    for (uint64_t again = 0; again < 5; ++again) trace.push_back(1000 + first - std::min(first, 2 * again));
  return trace;
}

TEST(BlockPool, EvictsTheLeastRecentlyUsedByDefault) {
  for (const int64_t pages : {1, 2, 7, 16, 17})
    for (const auto& trace : {at_random(500, 23, 1), scans(), drift()})
      EXPECT_EQ(hits(EvictionPolicy::lru, pages, trace), hits_of_lru(pages, trace)) << pages;
}

TEST(BlockPool, AScanDoesNotEvictWhatWasFoundAgain) {
  EXPECT_EQ(hits(EvictionPolicy::lru, 10, scans()), 6);  // only those of the first round
  EXPECT_EQ(hits(EvictionPolicy::frequency, 10, scans()), 50 * 6);
  EXPECT_GE(hits(EvictionPolicy::adaptive, 10, scans()), 49 * 6);
}

// Blocks that were found again fill the pool of the policy that keeps them first, long after their last use.
TEST(BlockPool, GhostsMakeRoomForWhatIsUsedNow) {
  std::vector<uint64_t> trace;
  for (int twice = 0; twice < 2; ++twice)
    for (uint64_t old = 0; old < 10; ++old) trace.push_back(old);
  for (uint64_t round = 0; round < 100; ++round)
    for (uint64_t now = 0; now < 6; ++now) trace.push_back(100 + now);
  EXPECT_LE(hits(EvictionPolicy::frequency, 10, trace),
            10);  // one page is left, and six blocks go through it
  EXPECT_GE(hits(EvictionPolicy::adaptive, 10, trace), 10 + 95 * 6);
  EXPECT_GE(hits(EvictionPolicy::lru, 10, trace), 10 + 99 * 6);
  EXPECT_GE(hits(EvictionPolicy::adaptive, 8, drift()), hits(EvictionPolicy::lru, 8, drift()) * 95 / 100);
}

// The share of pages for blocks used once follows the ghosts: it grows when one of theirs is missed, and
// shrinks when one that had been found again is.
TEST(BlockPool, TheTargetFollowsTheGhosts) {
  BlockPool pool(4, EvictionPolicy::adaptive);
  EXPECT_EQ(pool.target_once(), 0);
  for (uint64_t block = 0; block < 6; ++block) use(pool, block);  // 0 and 1 are ghosts
  EXPECT_FALSE(use(pool, 0));
  EXPECT_EQ(pool.target_once(), 1);
  EXPECT_FALSE(use(pool, 9));  // never seen
  EXPECT_EQ(pool.target_once(), 1);
  BlockPool other(2, EvictionPolicy::adaptive);
  for (const uint64_t block : {0, 0, 1, 1, 2, 2}) use(other, block);  // 0, found again, is a ghost
  EXPECT_EQ(other.target_once(), 0);
  EXPECT_FALSE(use(other, 0));
  EXPECT_EQ(other.target_once(), 0);  // it cannot shrink further
}

TEST(GhostList, RemembersTheLastOfThem) {
  GhostList ghosts(3);
  const auto hash = [](uint64_t n) { return BlockHash{n, n}; };
  for (uint64_t n = 1; n <= 5; ++n) ghosts.add(hash(n));
  EXPECT_EQ(ghosts.size(), 3);
  EXPECT_FALSE(ghosts.remove(hash(2)));
  EXPECT_TRUE(ghosts.remove(hash(4)));
  EXPECT_FALSE(ghosts.remove(hash(4)));
  ghosts.add(hash(4)), ghosts.add(hash(4));
  EXPECT_EQ(ghosts.size(), 2);  // 5 and 4: its slot was that of 3
  EXPECT_FALSE(ghosts.remove(hash(3)));
  EXPECT_TRUE(ghosts.remove(hash(5)));
  EXPECT_TRUE(ghosts.remove(hash(4)));
  EXPECT_EQ(ghosts.size(), 0);
  GhostList none(0);
  none.add(hash(1));
  EXPECT_FALSE(none.remove(hash(1)));
}

TEST(BlockPool, AllocatesEveryPageOnce) {
  BlockPool pool(37);
  std::vector<bool> seen(37);
  for (int i = 0; i < 37; ++i) {
    const Page page = pool.allocate();
    EXPECT_FALSE(seen.at(static_cast<size_t>(page)));
    seen[static_cast<size_t>(page)] = true;
  }
  EXPECT_EQ(pool.free_pages(), 0);
}

TEST(BlockManager, MatchesAPrefixOfFullBlocksAndLeavesOneToken) {
  BlockManager blocks({.pages = {100, 0}, .page_size = 4});
  SequencePages first = computed(blocks, counting(13));
  int64_t hit         = 0;
  for (const auto& [length, expected] :
       {std::pair{13, 12}, {12, 8}, {9, 8}, {8, 4}, {5, 4}, {4, 0}, {1, 0}}) {
    SequencePages again = computed(blocks, counting(length), &hit);
    EXPECT_EQ(hit, expected) << length;
    blocks.free(again);
  }
  Tokens other        = counting(13);
  other[5]            = 99;
  SequencePages third = computed(blocks, other, &hit);
  EXPECT_EQ(hit, 4);
  EXPECT_EQ(third.block_tables[kFull].pages[0], first.block_tables[kFull].pages[0]);
  EXPECT_NE(third.block_tables[kFull].pages[2],
            first.block_tables[kFull].pages[2]);  // equal tokens after another prefix
}

// With a window of 8 and pages of 4, a sequence that continues at a block needs the two blocks before it.
TEST(BlockManager, AWindowHoldsOnlyItsOwnBlocks) {
  BlockManager blocks({.pages = {100, 100}, .page_size = 4, .window = 8});
  SequencePages first = computed(blocks, counting(40));
  // Position 40 attends to positions 33 to 40.
  EXPECT_EQ(first.block_tables[kWindow].first, 8);
  EXPECT_EQ(blocks.pool(kWindow).free_pages(), 98);
  EXPECT_EQ(blocks.pool(kFull).free_pages(), 90);
  SequencePages second;
  EXPECT_EQ(blocks.match_prefix(second, counting(23), ""), 20);
  EXPECT_EQ(second.block_tables[kWindow].first, 3);
  EXPECT_EQ(second.block_tables[kWindow].pages[2], -1);
  EXPECT_EQ(blocks.pool(kWindow).free_pages(), 96);
}

TEST(BlockManager, AnEvictedWindowShortensThePrefix) {
  BlockManager blocks({.pages = {100, 6}, .page_size = 4, .window = 8});
  SequencePages first;
  const Tokens tokens = counting(40);
  for (int64_t end = 4; end <= 40; end += 4) {
    ASSERT_TRUE(blocks.allocate(first, end));
    blocks.commit(first, tokens, end, "");
  }
  // Of ten window blocks, six pages hold the last six: 4 .. 9. A prefix may end at 24 or later, or at 0.
  SequencePages at_end, early;
  EXPECT_EQ(blocks.match_prefix(at_end, counting(25), ""), 24);
  blocks.free(at_end);
  EXPECT_EQ(blocks.match_prefix(early, counting(23), ""), 0);
  EXPECT_TRUE(early.block_tables[kFull].pages.empty());
}

TEST(BlockManager, AllocatesNothingThatDoesNotFit) {
  BlockManager blocks({.pages = {5, 3}, .page_size = 4, .window = 8});
  SequencePages pages;
  EXPECT_EQ(blocks.max_allocatable(pages), 12);
  EXPECT_FALSE(blocks.allocate(pages, 13));
  EXPECT_EQ(blocks.pages_in_use(), 0);
  EXPECT_TRUE(blocks.allocate(pages, 12));
  EXPECT_EQ(blocks.pages_in_use(), 6);
  EXPECT_TRUE(blocks.can_hold(pages, 20));
  EXPECT_FALSE(blocks.can_hold(pages, 21));
}

TEST(BlockManager, SharesNothingWithoutPrefixCache) {
  BlockManager blocks({.pages = {10, 10}, .page_size = 4, .window = 8, .prefix_cache = false});
  int64_t hit = 0;
  computed(blocks, counting(8));
  computed(blocks, counting(8), &hit);
  EXPECT_EQ(hit, 0);
}

TEST(BlockManager, AResetCacheFindsNothingNotEvenWhatSequencesGoOnToWrite) {
  for (const EvictionPolicy policy :
       {EvictionPolicy::lru, EvictionPolicy::frequency, EvictionPolicy::adaptive}) {
    BlockManager blocks({.pages = {12, 0}, .page_size = 4, .eviction = policy});
    const Tokens tokens = counting(16), more = counting(20), others = counting(8, 100);
    SequencePages kept = computed(blocks, tokens);
    SequencePages gone = computed(blocks, others), found;
    blocks.free(gone);
    EXPECT_EQ(blocks.match_prefix(found, more, ""), 16);
    blocks.free(found);

    blocks.reset_prefix_cache();
    kept.uncacheable = true;
    EXPECT_EQ(blocks.cached_prefix(more, ""), 0);
    EXPECT_EQ(blocks.cached_prefix(counting(9, 100), ""), 0);
    EXPECT_EQ(blocks.pages_in_use(), 4) << "the sequence has its pages";
    ASSERT_TRUE(blocks.allocate(kept, 20));
    blocks.plan(kept, more, 20, "", {0, 1});
    EXPECT_EQ(blocks.planned(), 0);
    blocks.commit(kept, more, 20, "");
    EXPECT_EQ(blocks.match_prefix(found, counting(24), "", SchedulingOrder{0, 2}), 0);
    blocks.free(found);
    // The same tokens computed again are found, and only up to where they were computed again.
    SequencePages again = computed(blocks, tokens);
    EXPECT_EQ(blocks.cached_prefix(counting(24), ""), 16);
    blocks.free(kept);
    EXPECT_FALSE(kept.uncacheable) << "of a sequence that begins anew";
    blocks.free(again);
    EXPECT_EQ(blocks.cached_prefix(counting(24), ""), 16);
    // All pages are there, those without a block first.
    EXPECT_EQ(blocks.pool(kFull).free_pages(), 12);
    SequencePages all;
    ASSERT_TRUE(blocks.allocate(all, 8 * 4));
    EXPECT_EQ(blocks.cached_prefix(counting(24), ""), 16);
    EXPECT_EQ(blocks.forgotten(), 0);
    blocks.free(all);
  }
}

}  // namespace
}  // namespace fathom::engine
