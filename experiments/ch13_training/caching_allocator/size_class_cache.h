// A caching allocator by size classes: a request is rounded up to one of four sizes a power of two (from 2
// KiB on, so that it wastes at most a fifth of its block), and a block that was freed serves the next request
// of its class. Blocks go back to where they came from only when that has nothing left (as in jemalloc and
// PyTorch's allocator, without their splitting).
//
// For memory that is used in one stream: a block may be handed out again while work that used it is still
// enqueued, since new work comes after it. Not for several threads.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

namespace fathom::lab::caching_allocator {

// Where blocks come from: cudaMalloc, or a fake in tests.
struct BlockSource {
  std::function<void*(int64_t bytes)> allocate;  // null where there is no memory left; aligned to 256
  std::function<void(void*)> release;
  std::function<int64_t()> available;  // bytes, for the error
};

class SizeClassCache {
 public:
  explicit SizeClassCache(BlockSource source) : source_(std::move(source)) {}
  ~SizeClassCache();  // releases all blocks, used ones too
  SizeClassCache(const SizeClassCache&)            = delete;
  SizeClassCache& operator=(const SizeClassCache&) = delete;

  static constexpr int64_t kAlignment = 512;  // of sizes
  static constexpr int64_t kLargest   = int64_t{1} << 46;
  // The size of the block that serves a request of so many bytes, 1 to kLargest.
  static int64_t size_class(int64_t bytes);

  // Null for 0 bytes. Throws NotEnoughMemory.
  void* allocate(int64_t bytes);
  // Null is allowed. ContractError for memory that is not in use: freed before, or not from here.
  void free(void* memory);
  void release_cached();

  int64_t reserved() const { return reserved_; }  // bytes taken from the source
  int64_t in_use() const { return in_use_; }      // bytes of blocks handed out, as rounded

 private:
  struct Block {
    int64_t bytes;
    bool used;
  };
  BlockSource source_;
  std::unordered_map<void*, Block> blocks_;
  std::unordered_map<int64_t, std::vector<void*>> cached_;  // by size class
  int64_t reserved_ = 0, in_use_ = 0;
};

}  // namespace fathom::lab::caching_allocator
