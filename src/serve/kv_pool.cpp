#include "serve/kv_pool.h"

#include "core/expect.h"

namespace fathom::serve {

KvPool::KvPool(int64_t budget) {
  FATHOM_EXPECT(budget >= 0, "a budget of bytes is not negative");
  stats_.budget = budget;
}

bool KvPool::put(const KvPoolKey& key, PooledBlock block) {
  const int64_t needed = cost(block);
  std::list<Entry> evicted;  // freed after the lock
  const std::lock_guard lock(mutex_);
  if (needed > stats_.budget) return false;
  if (const auto found = entries_.find(key); found != entries_.end()) {
    lru_.splice(lru_.begin(), lru_, found->second);
    return true;
  }
  while (stats_.bytes + needed > stats_.budget) {
    const auto last = std::prev(lru_.end());
    stats_.bytes -= cost(*last->second);
    ++stats_.evicted;
    entries_.erase(last->first);
    evicted.splice(evicted.begin(), lru_, last);
  }
  ++stats_.stored;
  stats_.stored_bytes += static_cast<int64_t>(block.bytes.size());
  stats_.bytes += needed;
  lru_.emplace_front(key, std::make_shared<const PooledBlock>(std::move(block)));
  entries_.emplace(key, lru_.begin());
  return true;
}

std::vector<bool> KvPool::match(std::span<const KvPoolKey> keys, bool lookup) {
  std::vector<bool> here(keys.size());
  const std::lock_guard lock(mutex_);
  for (size_t i = keys.size(); i-- > 0;) {
    const auto found = entries_.find(keys[i]);
    here[i]          = found != entries_.end();
    if (here[i]) lru_.splice(lru_.begin(), lru_, found->second);
    if (lookup) ++(here[i] ? stats_.hits : stats_.misses);
  }
  return here;
}

PooledBlockPtr KvPool::get(const KvPoolKey& key) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return nullptr;
  ++stats_.loaded;
  stats_.loaded_bytes += static_cast<int64_t>(found->second->second->bytes.size());
  return found->second->second;
}

void KvPool::erase_damaged(const KvPoolKey& key) {
  const std::lock_guard lock(mutex_);
  ++stats_.damaged;
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  stats_.bytes -= cost(*found->second->second);
  lru_.erase(found->second);
  entries_.erase(found);
}

void KvPool::count_damaged() {
  const std::lock_guard lock(mutex_);
  ++stats_.damaged;
}

KvPoolStats KvPool::stats() const {
  const std::lock_guard lock(mutex_);
  KvPoolStats now = stats_;
  now.blocks      = static_cast<int64_t>(entries_.size());
  return now;
}

}  // namespace fathom::serve
