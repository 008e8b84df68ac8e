#include "engine/block_manager.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

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

}  // namespace
}  // namespace fathom::engine
