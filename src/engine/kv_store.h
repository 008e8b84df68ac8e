// The blocks of an engine's prefix cache, for those who bring blocks from another engine
// (serve/prefill_offload.h). A request whose prompt begins with them finds them there, as if this engine had
// computed them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/block_manager.h"
#include "engine/kv_block.h"
#include "engine/model_runner.h"

namespace fathom::engine {

// Lives for one call of Engine::with_kv(), on the engine's thread.
class KvStore {
 public:
  KvStore(BlockManager& blocks, ModelRunner& runner) : blocks_(blocks), runner_(runner) {}

  // A request with this prompt would find so many of its tokens; with `more`, if those blocks came too.
  int64_t cached_tokens(std::span<const model::TokenId> prompt, std::string_view salt,
                        const BlockManager::IsBlock& more = {}) const {
    return blocks_.cached_prefix(prompt, salt, more);
  }
  // What lacks for the longest prefix that a cache can hold; the spans are empty.
  std::vector<KvBlock> missing(std::span<const model::TokenId> prompt, std::string_view salt) const {
    return blocks_.missing_blocks(prompt, salt);
  }
  // Adds blocks. False, and nothing is added, where pages are too few or one of missing() is not among them.
  // Owners are kept until the bytes were read, which may be later.
  bool insert(std::span<const model::TokenId> prompt, std::string_view salt, std::span<const KvBlock> blocks);

  // Hands out those of `blocks`, full ones of `prompt`, that are cached, before it returns. `take` may keep
  // the bytes with their owner.
  void read(std::span<const model::TokenId> prompt, std::string_view salt, std::span<const KvBlock> blocks,
            const KvBlockListener& take);

  // ModelRunner's.
  void prepare_reads() { runner_.prepare_kv_reads(); }
  std::shared_ptr<void> pin_host_memory(std::span<std::byte> memory) {
    return runner_.pin_host_memory(memory);
  }

 private:
  BlockManager& blocks_;
  ModelRunner& runner_;
};

}  // namespace fathom::engine
