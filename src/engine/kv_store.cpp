#include "engine/kv_store.h"

#include <algorithm>

#include "core/expect.h"

namespace fathom::engine {

bool KvStore::insert(std::span<const model::TokenId> prompt, std::string_view salt,
                     std::span<const KvBlock> blocks) {
  const auto given = [&](KvKind kind, int64_t block) {
    return std::find_if(blocks.begin(), blocks.end(),
                        [&](const KvBlock& b) { return b.kind == kind && b.block == block; });
  };
  for (const KvBlock& lacking : missing(prompt, salt)) {
    const auto found = given(lacking.kind, lacking.block);
    if (found == blocks.end()) return false;
    FATHOM_EXPECT(static_cast<int64_t>(found->bytes.size()) == runner_.kv_block_bytes(lacking.kind),
                  "a block has the size of this engine's pages");
  }
  return blocks_.insert_prefix(prompt, salt, [&](KvKind kind, int64_t block, Page page) {
    runner_.write_kv_block(kind, page, given(kind, block)->bytes);
  });
}

}  // namespace fathom::engine
