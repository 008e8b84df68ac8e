// Blocks of keys and values that several workers share (`fathom kv-pool`): an LRU cache by name, within a
// budget of bytes. It knows of no model: workers whose blocks are not interchangeable name them differently.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fathom::serve {

// Name of a block: a hash of its tokens and all tokens before it, of weights and layout, and of the kind of
// layers (kv_pool_protocol.h).
struct KvPoolKey {
  uint64_t low = 0, high = 0;
  bool operator==(const KvPoolKey&) const = default;
};

struct PooledBlock {
  std::string bytes;
  uint64_t checksum = 0;  // checksum_of(): who reads it compares
};
using PooledBlockPtr = std::shared_ptr<const PooledBlock>;

struct KvPoolStats {
  // Gauges.
  int64_t blocks = 0, bytes = 0, budget = 0;
  // Counters since the start. Hits and misses are blocks that a prompt was looked up by.
  int64_t hits = 0, misses = 0;
  int64_t stored = 0, loaded = 0, evicted = 0;  // blocks
  int64_t stored_bytes = 0, loaded_bytes = 0;   // of keys and values
  int64_t damaged = 0;                          // blocks whose checksum was wrong: not taken
};

// All functions may be called from any thread.
class KvPool {
 public:
  // What a block takes of the budget beside its bytes: its name and its places in the list and the table.
  static constexpr int64_t kEntryBytes = 160;

  explicit KvPool(int64_t budget);

  // The block becomes the most recently used; others make room before it is added. False: it is larger than
  // the budget. Where it is there already, nothing else changes.
  bool put(const KvPoolKey& key, PooledBlock block);

  // Whether each is here. Those that are become the most recently used, the first one last: where `keys` are
  // the blocks of a prompt, LRU gives up its end before its beginning. A `lookup` counts hits and misses.
  std::vector<bool> match(std::span<const KvPoolKey> keys, bool lookup);
  // The block, or null. It stays alive while it is read, though it may be evicted meanwhile.
  PooledBlockPtr get(const KvPoolKey& key);

  void erase_damaged(const KvPoolKey& key);  // what is here is not what was put
  void count_damaged();
  KvPoolStats stats() const;

 private:
  using Entry = std::pair<KvPoolKey, PooledBlockPtr>;
  struct LowBits {
    size_t operator()(const KvPoolKey& key) const { return key.low; }
  };
  static int64_t cost(const PooledBlock& block) {
    return static_cast<int64_t>(block.bytes.size()) + kEntryBytes;
  }

  mutable std::mutex mutex_;
  std::list<Entry> lru_;  // most recently used first
  std::unordered_map<KvPoolKey, std::list<Entry>::iterator, LowBits> entries_;
  KvPoolStats stats_;
};

}  // namespace fathom::serve
