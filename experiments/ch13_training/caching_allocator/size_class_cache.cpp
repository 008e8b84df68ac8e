#include "experiments/ch13_training/caching_allocator/size_class_cache.h"

#include <algorithm>
#include <bit>
#include <string>

#include "core/expect.h"

namespace fathom::lab::caching_allocator {

SizeClassCache::~SizeClassCache() {
  for (const auto& [memory, block] : blocks_) source_.release(memory);
}

int64_t SizeClassCache::size_class(int64_t bytes) {
  FATHOM_EXPECT(bytes > 0 && bytes <= kLargest,
                "a block has 1 to 2^46 bytes, and not " + std::to_string(bytes));
  const auto power   = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes)));
  const int64_t step = std::max(kAlignment, power / 4);
  return (bytes + step - 1) / step * step;
}

void* SizeClassCache::allocate(int64_t bytes) {
  if (bytes == 0) return nullptr;
  const int64_t size         = size_class(bytes);
  std::vector<void*>& cached = cached_[size];
  void* memory               = nullptr;
  if (!cached.empty()) {
    memory = cached.back();
    cached.pop_back();
  } else {
    memory = source_.allocate(size);
    if (!memory) {
      release_cached();
      memory = source_.allocate(size);
    }
    if (!memory) throw NotEnoughMemory(size, source_.available());
    FATHOM_EXPECT(reinterpret_cast<uintptr_t>(memory) % 256 == 0, "a source aligns blocks to 256 bytes");
    FATHOM_EXPECT(blocks_.count(memory) == 0, "the source has handed out memory that is still reserved");
    reserved_ += size;
  }
  blocks_[memory] = {size, true};
  in_use_ += size;
  return memory;
}

void SizeClassCache::free(void* memory) {
  if (!memory) return;
  const auto found = blocks_.find(memory);
  FATHOM_EXPECT(found != blocks_.end(), "freed memory that is no block of this allocator");
  FATHOM_EXPECT(found->second.used, "freed memory that was freed before");
  found->second.used = false;
  in_use_ -= found->second.bytes;
  cached_[found->second.bytes].push_back(memory);
}

void SizeClassCache::release_cached() {
  for (auto& [size, cached] : cached_) {
    for (void* memory : cached) {
      blocks_.erase(memory);
      source_.release(memory);
      reserved_ -= size;
    }
    cached.clear();
  }
}

}  // namespace fathom::lab::caching_allocator
