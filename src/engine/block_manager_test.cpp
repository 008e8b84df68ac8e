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

// Computes all of `tokens`, in one piece.
SequencePages computed(BlockManager& blocks, const Tokens& tokens, int64_t* hit = nullptr) {
  SequencePages pages;
  const int64_t found = blocks.adopt(pages, tokens, "");
  if (hit) *hit = found;
  EXPECT_TRUE(blocks.reserve(pages, static_cast<int64_t>(tokens.size())));
  blocks.commit(pages, tokens, static_cast<int64_t>(tokens.size()), "");
  return pages;
}

TEST(PagePool, TheOneThatHasBeenFreeForLongestGoesFirstAndBlankOnesBeforeAll) {
  PagePool pool(4);
  const Page a = pool.take(), b = pool.take(), c = pool.take();
  pool.name(a, {1, 1}), pool.name(b, {2, 2});
  pool.release(b), pool.release(a), pool.release(c);
  EXPECT_EQ(pool.free_pages(), 4);
  EXPECT_EQ(pool.take(), c);  // blank, and free last
  pool.take();                // the fourth
  EXPECT_EQ(pool.find({2, 2}), b);
  EXPECT_EQ(pool.take(), b);
  EXPECT_FALSE(pool.find({2, 2}));
  EXPECT_EQ(pool.find({1, 1}), a);
  pool.share(a);  // no longer free
  EXPECT_EQ(pool.free_pages(), 0);
  pool.share(a);
  pool.release(a);
  EXPECT_EQ(pool.free_pages(), 0);
  pool.release(a);
  EXPECT_EQ(pool.free_pages(), 1);
}

TEST(PagePool, EveryPageComesOnce) {
  PagePool pool(37);
  std::vector<bool> seen(37);
  for (int i = 0; i < 37; ++i) {
    const Page page = pool.take();
    EXPECT_FALSE(seen.at(static_cast<size_t>(page)));
    seen[static_cast<size_t>(page)] = true;
  }
  EXPECT_EQ(pool.free_pages(), 0);
}

TEST(BlockManager, APrefixIsFoundToTheLastWholeBlockButOneToken) {
  BlockManager blocks({.pages = {100, 0}, .page_size = 4});
  SequencePages first = computed(blocks, counting(13));
  int64_t hit         = 0;
  for (const auto& [length, expected] :
       {std::pair{13, 12}, {12, 8}, {9, 8}, {8, 4}, {5, 4}, {4, 0}, {1, 0}}) {
    SequencePages again = computed(blocks, counting(length), &hit);
    EXPECT_EQ(hit, expected) << length;
    blocks.release(again);
  }
  Tokens other        = counting(13);
  other[5]            = 99;
  SequencePages third = computed(blocks, other, &hit);
  EXPECT_EQ(hit, 4);
  EXPECT_EQ(third.runs[kFull].pages[0], first.runs[kFull].pages[0]);
  EXPECT_NE(third.runs[kFull].pages[2], first.runs[kFull].pages[2]);  // equal tokens after another beginning
}

// A window of 8 and pages of 4: who goes on at a block needs the two blocks before it.
TEST(BlockManager, AWindowNeedsOnlyItsOwnBlocks) {
  BlockManager blocks({.pages = {100, 100}, .page_size = 4, .window = 8});
  SequencePages first = computed(blocks, counting(40));
  // Positions 33 to 40 are what position 40 sees.
  EXPECT_EQ(first.runs[kWindow].first, 8);
  EXPECT_EQ(blocks.pool(kWindow).free_pages(), 98);
  EXPECT_EQ(blocks.pool(kFull).free_pages(), 90);
  SequencePages second;
  EXPECT_EQ(blocks.adopt(second, counting(23), ""), 20);
  EXPECT_EQ(second.runs[kWindow].first, 3);
  EXPECT_EQ(second.runs[kWindow].pages[2], -1);
  EXPECT_EQ(blocks.pool(kWindow).free_pages(), 96);
}

TEST(BlockManager, AWindowThatIsGoneEndsThePrefixEarlier) {
  BlockManager blocks({.pages = {100, 6}, .page_size = 4, .window = 8});
  SequencePages first;
  const Tokens tokens = counting(40);
  for (int64_t end = 4; end <= 40; end += 4) {
    ASSERT_TRUE(blocks.reserve(first, end));
    blocks.commit(first, tokens, end, "");
  }
  // Of ten window blocks, six pages hold the last six: 4 .. 9. A prefix may end at 24 or later, or at 0.
  SequencePages at_end, early;
  EXPECT_EQ(blocks.adopt(at_end, counting(25), ""), 24);
  blocks.release(at_end);
  EXPECT_EQ(blocks.adopt(early, counting(23), ""), 0);
  EXPECT_TRUE(early.runs[kFull].pages.empty());
}

TEST(BlockManager, WhatDoesNotFitIsNotTaken) {
  BlockManager blocks({.pages = {5, 3}, .page_size = 4, .window = 8});
  SequencePages pages;
  EXPECT_EQ(blocks.room(pages), 12);
  EXPECT_FALSE(blocks.reserve(pages, 13));
  EXPECT_EQ(blocks.pages_in_use(), 0);
  EXPECT_TRUE(blocks.reserve(pages, 12));
  EXPECT_EQ(blocks.pages_in_use(), 6);
  EXPECT_TRUE(blocks.could_hold(pages, 20));
  EXPECT_FALSE(blocks.could_hold(pages, 21));
}

TEST(BlockManager, WithoutACacheNothingIsShared) {
  BlockManager blocks({.pages = {10, 10}, .page_size = 4, .window = 8, .prefix_cache = false});
  int64_t hit = 0;
  computed(blocks, counting(8));
  computed(blocks, counting(8), &hit);
  EXPECT_EQ(hit, 0);
}

}  // namespace
}  // namespace fathom::engine
