// How flash_attention.h cuts a ragged batch.
#pragma once

#include <cstdint>

namespace fathom::kernels {

// Rows of a sequence that a CTA computes.
struct AttentionTile {
  int32_t row, rows;        // in q: the first, and how many
  int32_t position;         // of the first one in its sequence
  int32_t sequence;         // of the batch
  int32_t first_key, keys;  // the sequence's rows of k
};

// A tile's rows, and keys of a block, for heads of 64 or 128. A warpgroup has 64 of the rows; it skips a
// block that none of them sees.
constexpr int attention_tile_rows(int head_size) { return head_size == 64 ? 192 : 128; }
constexpr int attention_block_keys(int head_size) { return head_size == 64 ? 64 : 128; }

}  // namespace fathom::kernels
