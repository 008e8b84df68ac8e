#include "kernels/attention/attention_tiles.h"

#include <algorithm>

#include "core/expect.h"

namespace fathom::kernels {

std::vector<AttentionTile> attention_tiles(std::span<const int32_t> q_offsets,
                                           std::span<const int32_t> k_offsets, int head_size) {
  FATHOM_EXPECT(head_size == 64 || head_size == 128, "flash_attention: heads have 64 or 128 dimensions");
  FATHOM_EXPECT(!q_offsets.empty() && q_offsets.size() == k_offsets.size(),
                "flash_attention: q and k have offsets of the same sequences, and one more");
  const int32_t tile_rows = attention_tile_rows(head_size);
  std::vector<AttentionTile> tiles;
  for (size_t s = 0; s + 1 < q_offsets.size(); ++s) {
    const int32_t rows = q_offsets[s + 1] - q_offsets[s], keys = k_offsets[s + 1] - k_offsets[s];
    FATHOM_EXPECT(rows >= 0 && keys >= 0, "flash_attention: offsets must not decrease");
    for (int32_t row = 0; row < rows; row += tile_rows)
      tiles.push_back({.row       = q_offsets[s] + row,
                       .rows      = std::min(tile_rows, rows - row),
                       .position  = row + keys - rows,
                       .sequence  = static_cast<int32_t>(s),
                       .first_key = k_offsets[s],
                       .keys      = keys});
  }
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const AttentionTile& a, const AttentionTile& b) { return a.position > b.position; });
  return tiles;
}

int64_t most_key_blocks(std::span<const int32_t> k_offsets, int head_size) {
  const int32_t block = attention_block_keys(head_size);
  int64_t most        = 0;
  for (size_t s = 0; s + 1 < k_offsets.size(); ++s)
    most = std::max<int64_t>(most, (k_offsets[s + 1] - k_offsets[s] + block - 1) / block);
  return most;
}

}  // namespace fathom::kernels
