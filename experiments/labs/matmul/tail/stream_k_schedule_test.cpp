// Every block of k of every tile once, and no wait that could last: for numbers of tiles around whole waves.
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
  std::map<int, Written> slots;          // by slot
  std::map<int, std::set<int>> of_tile;  // the blocks of k that its parts have
  std::map<int, std::set<int>> parts;    // slots of the parts of a tile that do not begin at 0
  for (int cta = 0; cta < schedule.ctas; ++cta)
    for (int i = 0; i < schedule.count(cta); ++i) {
      const Part part = schedule.part(cta, i);
      ASSERT_TRUE(part.tile >= 0 && part.tile < schedule.tiles);
      ASSERT_TRUE(part.begin >= 0 && part.begin < part.end && part.end <= schedule.blocks);
      for (int block = part.begin; block < part.end; ++block)
        ASSERT_TRUE(of_tile[part.tile].insert(block).second) << "block " << block << " twice";
      if (part.begin == 0) continue;
      ASSERT_TRUE(part.slot >= 0 && part.slot < schedule.ctas);
      ASSERT_TRUE(slots.insert({part.slot, {cta, i}}).second) << "slot " << part.slot << " twice";
      parts[part.tile].insert(part.slot);
    }
  for (int tile = 0; tile < schedule.tiles; ++tile)
    ASSERT_EQ(static_cast<int>(of_tile[tile].size()), schedule.blocks) << "tile " << tile;
  for (int cta = 0; cta < schedule.ctas; ++cta)
    for (int i = 0; i < schedule.count(cta); ++i) {
      const Part part = schedule.part(cta, i);
      if (part.begin > 0) continue;
      ASSERT_EQ(part.others, static_cast<int>(parts[part.tile].size())) << "tile " << part.tile;
      for (int other = 0; other < part.others; ++other) {
        const int slot = part.first_slot + other * part.slot_step;
        ASSERT_TRUE(parts[part.tile].contains(slot));
        // A CTA that starts earlier does it first.
        ASSERT_LT(slots.at(slot).cta, cta);
        ASSERT_EQ(slots.at(slot).place, 0);
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
TEST(StreamK, OneTileHasEachBlockOnceAndWaitsForWhatBeganEarlier) { for_all(one_tile_schedule); }

// 145 tiles are 1.1 waves of 132: 13 tiles in ten parts each, and then a whole tile for each CTA.
TEST(StreamK, OneTileSharesTheBrokenWaveEvenly) {
  const StreamK schedule = one_tile_schedule(145, 128, 132);
  EXPECT_EQ(schedule.pieces, 130);
  for (int cta = 0; cta < 132; ++cta) {
    EXPECT_EQ(schedule.count(cta), cta < 2 ? 1 : 2);
    EXPECT_EQ(schedule.part(cta, schedule.count(cta) - 1).end, 128);
  }
}

}  // namespace
}  // namespace fathom::lab::matmul
