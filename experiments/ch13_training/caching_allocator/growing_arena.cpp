#include "experiments/ch13_training/caching_allocator/growing_arena.h"

#include <iterator>
#include <string>

#include "core/expect.h"

namespace fathom::lab::caching_allocator {
namespace {

int64_t whole(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

GrowingArena::GrowingArena(AddressRange range) : range_(std::move(range)) {
  FATHOM_EXPECT(reinterpret_cast<uintptr_t>(range_.base) % kAlignment == 0,
                "an arena begins at a multiple of 512 bytes");
  FATHOM_EXPECT(range_.granularity > 0 && range_.granularity % kAlignment == 0,
                "an arena's memory comes in multiples of 512 bytes");
}

void* GrowingArena::allocate(int64_t bytes) {
  FATHOM_EXPECT(bytes >= 0, "an allocation of " + std::to_string(bytes) + " bytes");
  if (bytes == 0) return nullptr;
  if (bytes > range_.capacity) throw NotEnoughMemory(bytes, range_.capacity - in_use_);
  const int64_t size = whole(bytes, kAlignment);
  auto gap           = best_fit(size);
  if (gap == gaps_.end()) gap = grow(size);
  const auto [offset, room] = *gap;
  gaps_.erase(gap);
  if (room > size) gaps_.emplace(offset + size, room - size);
  pieces_.emplace(offset, size);
  in_use_ += size;
  return static_cast<char*>(range_.base) + offset;
}

void GrowingArena::free(void* memory) {
  if (!memory) return;
  // By value: memory of others may lie anywhere.
  const auto offset =
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory) - reinterpret_cast<uintptr_t>(range_.base));
  FATHOM_EXPECT(offset >= 0 && offset < mapped_, "freed memory that is not of this arena");
  const auto found = pieces_.find(offset);
  FATHOM_EXPECT(found != pieces_.end(), "freed memory that was freed before, or not where a piece begins");
  const int64_t size = found->second;
  pieces_.erase(found);
  in_use_ -= size;
  add_gap(offset, size);
}

// The smallest gap that is large enough, the first of equal ones.
GrowingArena::Gaps::iterator GrowingArena::best_fit(int64_t bytes) {
  auto best = gaps_.end();
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap)
    if (gap->second >= bytes && (best == gaps_.end() || gap->second < best->second)) best = gap;
  return best;
}

// Adds memory at the end, as much as the last gap lacks, and returns that gap.
GrowingArena::Gaps::iterator GrowingArena::grow(int64_t bytes) {
  int64_t at_end = 0;
  if (!gaps_.empty()) {
    const auto last = std::prev(gaps_.end());
    if (last->first + last->second == mapped_) at_end = last->second;
  }
  const int64_t more = whole(bytes - at_end, range_.granularity);
  if (more > range_.capacity - mapped_ || !range_.map(mapped_, more)) throw NotEnoughMemory(bytes, at_end);
  const int64_t offset = mapped_;
  mapped_ += more;
  return add_gap(offset, more);
}

GrowingArena::Gaps::iterator GrowingArena::add_gap(int64_t offset, int64_t bytes) {
  auto after = gaps_.lower_bound(offset);
  if (after != gaps_.end() && after->first == offset + bytes) {
    bytes += after->second;
    after = gaps_.erase(after);
  }
  if (after != gaps_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return before;
    }
  }
  return gaps_.emplace_hint(after, offset, bytes);
}

}  // namespace fathom::lab::caching_allocator
