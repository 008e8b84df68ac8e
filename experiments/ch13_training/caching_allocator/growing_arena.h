// An allocator in one range of addresses, of which only the first part has memory. Where no gap is large
// enough the part grows at its end: nothing moves, and old and new memory are contiguous, so that a large
// request can lie across the seam (as PyTorch's expandable segments). The best-fitting gap is split, and a
// freed piece merges with the gaps beside it.
//
// For memory that is used in one stream, as SizeClassCache is. Not for several threads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <unordered_map>

namespace fathom::lab::caching_allocator {

// Addresses without memory: a GPU's virtual memory, or a fake in tests.
struct AddressRange {
  void* base          = nullptr;  // aligned to 512 bytes
  int64_t capacity    = 0;        // bytes of addresses
  int64_t granularity = 0;        // memory comes in multiples; itself one of 512 bytes
  // Puts memory behind so many bytes from `offset` on; false where there is none left.
  std::function<bool(int64_t offset, int64_t bytes)> map;
};

class GrowingArena {
 public:
  explicit GrowingArena(AddressRange range);

  static constexpr int64_t kAlignment = 512;
  // Null for 0 bytes. Throws NotEnoughMemory, and is then as before.
  void* allocate(int64_t bytes);
  // Null is allowed. ContractError for memory that is not in use: freed before, or not from here.
  void free(void* memory);

  int64_t reserved() const { return mapped_; }  // bytes with memory behind them
  int64_t in_use() const { return in_use_; }    // bytes handed out, as rounded
  int64_t gaps() const { return static_cast<int64_t>(gaps_.size()); }

 private:
  using Gaps = std::map<int64_t, int64_t>;  // offset, bytes
  Gaps::iterator best_fit(int64_t bytes);
  Gaps::iterator grow(int64_t bytes);
  Gaps::iterator add_gap(int64_t offset, int64_t bytes);

  AddressRange range_;
  Gaps gaps_;                                    // no two of them adjacent
  std::unordered_map<int64_t, int64_t> pieces_;  // in use: offset, bytes
  int64_t mapped_ = 0, in_use_ = 0;
};

}  // namespace fathom::lab::caching_allocator
