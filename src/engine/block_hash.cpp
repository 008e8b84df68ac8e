#include "engine/block_hash.h"

#include <xxhash.h>

namespace fathom::engine {

void extend_block_hashes(std::vector<BlockHash>& hashes, std::span<const model::TokenId> tokens,
                         int64_t blocks, int64_t page_size, std::string_view salt, uint64_t seed) {
  for (auto b = static_cast<int64_t>(hashes.size()); b < blocks; ++b) {
    const XXH128_hash_t before = b == 0 ? XXH3_128bits_withSeed(salt.data(), salt.size(), seed)
                                        : XXH128_hash_t{hashes.back().low, hashes.back().high};
    const auto block = tokens.subspan(static_cast<size_t>(b * page_size), static_cast<size_t>(page_size));
    const XXH128_hash_t own = XXH3_128bits_withSeed(block.data(), block.size_bytes(), before.low64 ^ seed);
    const uint64_t both[]   = {before.low64, before.high64, own.low64, own.high64};
    const XXH128_hash_t h   = XXH3_128bits_withSeed(both, sizeof both, seed);
    hashes.push_back({.low = h.low64, .high = h.high64});
  }
}

}  // namespace fathom::engine
