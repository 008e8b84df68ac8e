// Every block of k of every tile once, the slots that are read are those written, and no wait that could
// last: for numbers of tiles around whole waves.
#include "experiments/labs/matmul/tail/stream_k_schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

namespace fathom::lab::matmul {
namespace {

constexpr int kMultiprocessors[] = {1, 2, 13, 132};
constexpr int kBlocks[]          = {1, 2, 3, 4, 5, 45, 128};

std::vector<int> tile_counts(int multiprocessors) {
  const int m = multiprocessors;
  return {1,     2,         m / 5 + 1,    m / 2 + 2, m, m + 1, m + m / 10 + 1, m + m / 2 + 2,
          2 * m, 2 * m + 1, 5 * m + m / 4};
}

// What the kernel does with the parts of a schedule.
void check(const StreamK& schedule) {
  struct Written {
    int cta, place;
  };
  std::map<int, Written> slots;             // by slot
  std::map<int, std::set<int>> of_tile;     // the blocks of k that its parts have
  std::map<int, std::map<int, int>> parts;  // of a tile that is cut: slots by where the part begins
  for (int cta = 0; cta < schedule.ctas; ++cta)
    for (int i = 0; i < schedule.count(cta); ++i) {
      const Part part = schedule.part(cta, i);
      ASSERT_TRUE(part.tile >= 0 && part.tile < schedule.tiles);
      ASSERT_TRUE(part.begin >= 0 && part.begin < part.end && part.end <= schedule.blocks);
      for (int block = part.begin; block < part.end; ++block)
        ASSERT_TRUE(of_tile[part.tile].insert(block).second) << "block " << block << " twice";
      if (part.begin == 0 && part.end == schedule.blocks) continue;
      ASSERT_TRUE(part.slot >= 0 && part.slot < schedule.slots());
      ASSERT_TRUE(slots.insert({part.slot, {cta, i}}).second) << "slot " << part.slot << " twice";
      parts[part.tile][part.begin] = part.slot;
    }
  for (int tile = 0; tile < schedule.tiles; ++tile)
    ASSERT_EQ(static_cast<int>(of_tile[tile].size()), schedule.blocks) << "tile " << tile;
  for (int cta = 0; cta < schedule.ctas; ++cta)
    for (int i = 0; i < schedule.count(cta); ++i) {
      const Part part  = schedule.part(cta, i);
      const bool whole = part.begin == 0 && part.end == schedule.blocks;
      ASSERT_EQ(part.others + 1, whole ? 1 : static_cast<int>(parts[part.tile].size()))
          << "tile " << part.tile;
      // In the order of k, one slot after another, and the first part's before them.
      int slot = part.first_slot - 1;
      if (!whole) {
        for (const auto& [begin, of_part] : parts[part.tile]) ASSERT_EQ(of_part, slot++) << "from " << begin;
      }
      if (schedule.whole_first) {
        // A CTA has at most two parts of cut tiles, its last: each has a warpgroup of its own, which waits
        // for nothing before.
        ASSERT_GE(whole ? schedule.count(cta) : i + 2, schedule.count(cta));
      } else if (part.begin == 0) {
        // The owner waits for what a CTA that starts earlier does first.
        for (int other = 0; other < part.others; ++other) {
          const Written& written = slots.at(part.first_slot + other * part.slot_step);
          ASSERT_LT(written.cta, cta);
          ASSERT_EQ(written.place, 0);
        }
      }
    }
}

void for_all(StreamK (*schedule)(int tiles, int blocks, int multiprocessors)) {
  for (const int multiprocessors : kMultiprocessors)
    for (const int blocks : kBlocks)
      for (const int tiles : tile_counts(multiprocessors)) {
        SCOPED_TRACE(testing::Message()
                     << tiles << " tiles of " << blocks << " blocks on " << multiprocessors);
        check(schedule(tiles, blocks, multiprocessors));
      }
}

TEST(StreamK, TwoTileHasEachBlockOnceAndWaitsForWhatBeganEarlier) { for_all(two_tile_schedule); }
TEST(StreamK, OneTileHasEachBlockOnceAndItsCutTilesLast) { for_all(one_tile_schedule); }

// 145 tiles are 1.1 waves of 132: a whole tile for each CTA, and then 13 tiles in ten parts each.
TEST(StreamK, OneTileSharesTheBrokenWaveEvenly) {
  const StreamK schedule = one_tile_schedule(145, 128, 132);
  EXPECT_EQ(schedule.pieces, 130);
  for (int cta = 0; cta < 132; ++cta) {
    EXPECT_EQ(schedule.count(cta), cta < 2 ? 1 : 2);
    EXPECT_EQ(schedule.part(cta, 0).begin, 0);
    EXPECT_EQ(schedule.part(cta, 0).end, 128);
  }
}

}  // namespace
}  // namespace fathom::lab::matmul
