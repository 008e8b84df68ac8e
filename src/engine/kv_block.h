// Blocks of the KV cache: the kinds of layers, and blocks on their way between engines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace fathom::engine {

// The kinds of layers; each has a page pool and block tables of its own.
enum KvKind { kFull, kWindow };
inline constexpr int kKvKinds = 2;

// Keys and values of the tokens of one page, for all layers of a kind: of each layer its keys, then its
// values, [page_size, Hkv, Dh] each.
struct KvBlock {
  KvKind kind   = kFull;
  int64_t block = 0;  // of the sequence: positions block * page_size and on
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner = {};  // keeps `bytes`; null: the call that they are handed to does
};
using KvBlockListener = std::function<void(const KvBlock&)>;

}  // namespace fathom::engine
