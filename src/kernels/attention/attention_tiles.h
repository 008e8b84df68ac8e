// The tiles of flash_attention.h for a ragged batch. On the host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention/attention_tile.h"

namespace fathom::kernels {

// Sequence s has rows q_offsets[s] .. q_offsets[s + 1] of q, and keys by k_offsets alike. Tiles late in their
// sequence come first, because a causal mask shows them the most keys.
std::vector<AttentionTile> attention_tiles(std::span<const int32_t> q_offsets,
                                           std::span<const int32_t> k_offsets, int head_size);

// The most key blocks of a sequence: the second extent of BlockMask::blocks.
int64_t most_key_blocks(std::span<const int32_t> k_offsets, int head_size);

}  // namespace fathom::kernels
