#include "kernels/attention/attention_tiles.h"

#include <gtest/gtest.h>

#include "core/expect.h"

namespace fathom::kernels {
namespace {

TEST(AttentionTiles, EveryRowOnceAndTheLateOnesFirst) {
  const std::vector<int32_t> rows = {0, 0, 1, 128, 192, 193, 500, 7, 5};
  const std::vector<int32_t> keys = {0, 9, 1, 128, 300, 193, 500, 0, 3};
  std::vector<int32_t> q_offsets{0}, k_offsets{0};
  for (size_t s = 0; s < rows.size(); ++s) {
    q_offsets.push_back(q_offsets.back() + rows[s]);
    k_offsets.push_back(k_offsets.back() + keys[s]);
  }
  for (const int head_size : {64, 128}) {
    std::vector<int> seen(static_cast<size_t>(q_offsets.back()));
    int32_t before = INT32_MAX;
    for (const AttentionTile& tile : attention_tiles(q_offsets, k_offsets, head_size)) {
      const auto s = static_cast<size_t>(tile.sequence);
      EXPECT_GE(tile.rows, 1);
      EXPECT_LE(tile.rows, head_size == 64 ? 192 : 128);
      EXPECT_GE(tile.row, q_offsets[s]);
      EXPECT_LE(tile.row + tile.rows, q_offsets[s + 1]);
      EXPECT_EQ(tile.first_key, k_offsets[s]);
      EXPECT_EQ(tile.keys, keys[s]);
      // The sequence's last row is at its last key's position.
      EXPECT_EQ(tile.position - (tile.row - q_offsets[s]), keys[s] - rows[s]);
      EXPECT_LE(tile.position, before);
      before = tile.position;
      for (int32_t r = 0; r < tile.rows; ++r) ++seen[static_cast<size_t>(tile.row + r)];
    }
    for (const int times : seen) EXPECT_EQ(times, 1);
  }
}

TEST(AttentionTiles, MostKeyBlocks) {
  EXPECT_EQ(most_key_blocks(std::vector<int32_t>{0}, 64), 0);
  EXPECT_EQ(most_key_blocks(std::vector<int32_t>{0, 64, 64, 193}, 64), 3);
  EXPECT_EQ(most_key_blocks(std::vector<int32_t>{0, 64, 64, 193}, 128), 2);
}

TEST(AttentionTiles, BrokenContracts) {
  const std::vector<int32_t> one = {0, 5}, two = {0, 5, 6}, falling = {0, 5, 3};
  EXPECT_THROW(attention_tiles(one, one, 96), ContractError);
  EXPECT_THROW(attention_tiles(one, two, 64), ContractError);
  EXPECT_THROW(attention_tiles(two, falling, 64), ContractError);
  EXPECT_THROW(attention_tiles({}, {}, 64), ContractError);
}

}  // namespace
}  // namespace fathom::kernels
