#include "serve/kv_pool_protocol.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>
#include <type_traits>

#include "engine/block_hash.h"

namespace fathom::serve {
namespace {

static_assert(sizeof(KvPoolFrame) == 16 && sizeof(KvPoolKey) == 16 && sizeof(KvBlockHead) == 32);
static_assert(std::is_trivially_copyable_v<KvBlockHead>);

template <class T>
void append(std::string& message, const T& value) {
  message.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
std::optional<T> take(std::string_view& body) {
  if (body.size() < sizeof(T)) return {};
  T value;
  std::memcpy(&value, body.data(), sizeof value);
  body.remove_prefix(sizeof value);
  return value;
}

}  // namespace

uint64_t checksum_of(const KvPoolKey& key, std::string_view bytes) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), key.low ^ key.high);
}

std::vector<KvPoolKey> kv_pool_keys(std::span<const model::TokenId> tokens, int64_t page_size,
                                    std::span<const engine::KvKind> kinds, std::string_view layout,
                                    std::string_view salt, uint64_t seed) {
  std::vector<engine::BlockHash> hashes;
  // The length keeps the end of one apart from the beginning of the other.
  engine::extend_block_hashes(hashes, tokens, static_cast<int64_t>(tokens.size()) / page_size, page_size,
                              fmt::format("{} {} {}", layout.size(), layout, salt), seed);
  std::vector<KvPoolKey> keys;
  keys.reserve(hashes.size() * kinds.size());
  for (const engine::BlockHash& hash : hashes)
    for (const engine::KvKind kind : kinds)
      keys.push_back({.low = hash.low, .high = hash.high ^ static_cast<uint64_t>(kind)});
  return keys;
}

std::string keys_message(uint64_t seed, std::span<const KvPoolKey> keys) {
  std::string message = block_message(seed);
  message.append(reinterpret_cast<const char*>(keys.data()), keys.size_bytes());
  return message;
}

std::string block_message(uint64_t seed) {
  std::string message;
  append(message, KvPoolFrame{.seed = seed});
  return message;
}

void append_block(std::string& message, const KvPoolKey& key, std::string_view bytes, uint64_t checksum) {
  append(message, KvBlockHead{.key = key, .bytes = bytes.size(), .checksum = checksum});
  message.append(bytes);
}

std::optional<KvPoolFrame> take_frame(std::string_view& body) { return take<KvPoolFrame>(body); }

Result<std::vector<KvPoolKey>> parse_keys(std::string_view rest) {
  if (rest.size() % sizeof(KvPoolKey) != 0) return Error{"the list of blocks ends within a name"};
  std::vector<KvPoolKey> keys(rest.size() / sizeof(KvPoolKey));
  if (!keys.empty()) std::memcpy(keys.data(), rest.data(), rest.size());
  return keys;
}

Result<std::vector<BlockView>> parse_blocks(std::string_view rest) {
  std::vector<BlockView> blocks;
  while (!rest.empty()) {
    const auto head = take<KvBlockHead>(rest);
    if (!head || head->bytes > rest.size()) return Error{"a block is not whole"};
    blocks.push_back({.key = head->key, .bytes = rest.substr(0, head->bytes), .checksum = head->checksum});
    rest.remove_prefix(head->bytes);
  }
  return blocks;
}

}  // namespace fathom::serve
