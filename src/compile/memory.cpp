#include "compile/memory.h"

#include <algorithm>
#include <numeric>

namespace fathom::compile {
namespace {

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

bool overlap(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

}  // namespace

Slab plan_slab(const std::vector<Lifetime>& lifetimes) {
  std::vector<size_t> by_size(lifetimes.size()), placed;
  std::iota(by_size.begin(), by_size.end(), size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](size_t a, size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  Slab slab{.offsets = std::vector<int64_t>(lifetimes.size())};
  for (const size_t tensor : by_size) {
    const int64_t bytes = aligned(lifetimes[tensor].bytes);
    int64_t offset      = 0;
    for (const size_t other : placed) {  // by offset
      if (!overlap(lifetimes[tensor], lifetimes[other])) continue;
      if (slab.offsets[other] - offset >= bytes) break;
      offset = std::max(offset, slab.offsets[other] + aligned(lifetimes[other].bytes));
    }
    slab.offsets[tensor] = offset;
    slab.bytes           = std::max(slab.bytes, offset + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), tensor,
                                   [&](size_t a, size_t b) { return slab.offsets[a] < slab.offsets[b]; }),
                  tensor);
  }
  return slab;
}

int64_t live_bytes(const std::vector<Lifetime>& lifetimes) {
  int64_t most = 0;
  for (const Lifetime& at : lifetimes) {
    int64_t live = 0;
    for (const Lifetime& other : lifetimes)
      if (other.first <= at.first && at.first <= other.last) live += aligned(other.bytes);
    most = std::max(most, live);
  }
  return most;
}

}  // namespace fathom::compile
