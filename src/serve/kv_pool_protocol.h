// What workers and a KV cache pool say to each other, over HTTP with bodies in binary:
//
//   GET  /kv/hello     JSON: protocol, seed, and the budget in bytes
//   POST /kv/match     frame, keys      -> a byte a key, 1: it is here. Counts as lookups of a prompt
//   POST /kv/contains  the same, and does not count
//   POST /kv/get       frame, keys      -> of each key a head, and its bytes; none where it is not here
//   POST /kv/put       frame, and of each block a head and its bytes
//
// A block counts when the body that brings it is whole and its checksum is right, so a worker that dies while
// it writes leaves nothing. The seed is random and new with each start of a pool. Names are hashes made with
// it: clients of a server, who do not know it, cannot construct two prompts of one name, and names for a
// former pool are refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "engine/kv_block.h"
#include "model/tokenizer.h"
#include "serve/kv_pool.h"

namespace fathom::serve {

inline constexpr uint64_t kKvPoolProtocol = 0x316c6f6f70766b66;  // "fkvpool1"
// Blocks of one message: as many as fit in so many bytes, at least one.
inline constexpr size_t kKvMessageBytes = 4 << 20;
inline constexpr size_t kMaxKeysOfGet   = 1 << 17;  // of one request
// The largest block, and so nearly the largest message.
inline constexpr size_t kMaxKvBlockBytes = 64 << 20;

// Every body from a worker begins with it. Numbers are little-endian, as all machines that the engine runs
// on.
struct KvPoolFrame {
  uint64_t protocol = kKvPoolProtocol;
  uint64_t seed     = 0;
};
struct KvBlockHead {
  KvPoolKey key;
  uint64_t bytes    = 0;  // that follow; 0: the block is not here
  uint64_t checksum = 0;
};

// Covers the name, so that right bytes under a wrong name do not pass.
uint64_t checksum_of(const KvPoolKey& key, std::string_view bytes);

// The names of all full blocks of `tokens`, block by block, of each those `kinds` of layers. `layout`:
// kv_layout() of the worker; `salt`: the request's.
std::vector<KvPoolKey> kv_pool_keys(std::span<const model::TokenId> tokens, int64_t page_size,
                                    std::span<const engine::KvKind> kinds, std::string_view layout,
                                    std::string_view salt, uint64_t seed);

std::string keys_message(uint64_t seed, std::span<const KvPoolKey> keys);
// Appends a block: to a message of put, after its frame, or to an answer of get.
std::string block_message(uint64_t seed);
void append_block(std::string& message, const KvPoolKey& key, std::string_view bytes, uint64_t checksum);

// The frame of a body; none where it is too short. What follows is the body's rest.
std::optional<KvPoolFrame> take_frame(std::string_view& body);
Result<std::vector<KvPoolKey>> parse_keys(std::string_view rest);
struct BlockView {
  KvPoolKey key;
  std::string_view bytes;  // empty: it is not here
  uint64_t checksum = 0;
};
Result<std::vector<BlockView>> parse_blocks(std::string_view rest);

}  // namespace fathom::serve
