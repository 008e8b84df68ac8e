#include "engine/model_runner.h"

#include <fmt/format.h>

namespace fathom::engine {

void ModelRunner::read_kv_blocks(std::span<const KvPage> pages, const TakeKvBlock& take) {
  for (size_t i = 0; i < pages.size(); ++i) {
    const auto bytes =
        std::make_shared<std::vector<std::byte>>(static_cast<size_t>(kv_block_bytes(pages[i].kind)));
    read_kv_block(pages[i].kind, pages[i].page, *bytes);
    take(i, *bytes, bytes);
  }
}

Status ModelRunner::swap_weights(std::vector<model::ProcessedWeights>&) {
  return Error{fmt::format("weights on {} cannot be replaced while it serves", device_name())};
}

void ModelRunner::write_kv_blocks(std::span<const KvPage> pages) {
  for (const KvPage& page : pages) write_kv_block(page.kind, page.page, page.bytes);
}

}  // namespace fathom::engine
