#include "engine/kv_store.h"

#include <map>
#include <utility>

#include "core/expect.h"

namespace fathom::engine {

bool KvStore::insert(std::span<const model::TokenId> prompt, std::string_view salt,
                     std::span<const KvBlock> blocks) {
  std::map<std::pair<KvKind, int64_t>, const KvBlock*> given;
  for (const KvBlock& block : blocks) given.emplace(std::pair(block.kind, block.block), &block);
  for (const KvBlock& lacking : missing(prompt, salt)) {
    const auto found = given.find({lacking.kind, lacking.block});
    if (found == given.end()) return false;
    FATHOM_EXPECT(static_cast<int64_t>(found->second->bytes.size()) == runner_.kv_block_bytes(lacking.kind),
                  "a block has the size of this engine's pages");
  }
  std::vector<KvPage> pages;
  const bool inserted = blocks_.insert_prefix(prompt, salt, [&](KvKind kind, int64_t block, Page page) {
    const KvBlock& from = *given.at({kind, block});
    pages.push_back({.kind = kind, .page = page, .bytes = from.bytes, .owner = from.owner});
  });
  runner_.write_kv_blocks(pages);  // no step that could read them is launched before
  return inserted;
}

void KvStore::read(std::span<const model::TokenId> prompt, std::string_view salt,
                   std::span<const KvBlock> blocks, const KvBlockListener& take) {
  const auto cached = blocks_.cached_pages(prompt, salt, blocks);
  std::vector<KvPage> pages;
  std::vector<int64_t> places;
  for (size_t i = 0; i < blocks.size(); ++i)
    if (cached[i]) {
      pages.push_back({.kind = blocks[i].kind, .page = *cached[i]});
      places.push_back(blocks[i].block);
    }
  runner_.read_kv_blocks(
      pages, [&](size_t i, std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
        take({.kind = pages[i].kind, .block = places[i], .bytes = bytes, .owner = std::move(owner)});
      });
}

}  // namespace fathom::engine
