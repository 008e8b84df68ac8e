// Links that visit every record of an array once, in random order, and return to the first. Neither a
// prefetcher nor an out-of-order window can know the next address before the current load is done.
#pragma once

#include <cstdint>
#include <vector>

#include "core/rng.h"

namespace fathom::lab {

// Writes the index of the next record into word `link` of each of `n` records of `words` words.
template <class T>
void link_random_cycle(T* records, int64_t n, int64_t words, int64_t link, uint64_t seed) {
  if (n == 0) return;
  std::vector<int32_t> order(static_cast<size_t>(n));
  fill_permutation(order.data(), n, seed, n);
  int64_t from = order.back();
  for (const int32_t to : order) {
    records[from * words + link] = static_cast<T>(to);
    from                         = to;
  }
}

}  // namespace fathom::lab
