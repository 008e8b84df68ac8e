// Names of the blocks of a sequence: a hash chain.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/block_pool.h"
#include "model/tokenizer.h"

namespace fathom::engine {

// Appends the hashes of `tokens`' blocks until there are `blocks`, all of them full. A block's hash covers
// the hash before it and its own tokens; the chain starts with the salt. Who does not know the seed cannot
// construct two sequences with equal hashes.
void extend_block_hashes(std::vector<BlockHash>& hashes, std::span<const model::TokenId> tokens,
                         int64_t blocks, int64_t page_size, std::string_view salt, uint64_t seed);

}  // namespace fathom::engine
