// out = sum of table(index(i))                       n indices, n words of 8 bytes
//
// bytes   12 n at least; this way 24 n: the indices are read twice, written once and read again
// flops   0
// limit   memory bandwidth
// idea    one pass of a radix sort: a bucket of indices for each block of the table, blocks small enough for
//         the L2. Order inside a bucket does not matter, a block is fetched once for all its indices. The
//         sort is part of the call: the cost of an order that is used once.
#include <array>

#include "gather.h"

namespace fathom::lab::gather_sorted {
namespace {

constexpr int kBlockBits       = 15;   // 2^15 words of 8 bytes: 256 KiB
constexpr int64_t kMostBuckets = 256;  // as many lines are written at once; a larger table gets larger blocks
// Buckets of random indices are nearly a power of two long. A line between them keeps the 256 places that are
// written at once out of each other's cache sets.
constexpr int64_t kSpare = Gather::kWorkspaceSpare / kMostBuckets;

}  // namespace

void bucketed(const Gather& p, Context&) {
  const int64_t n      = p.index.extent(0);
  const int64_t* table = p.table.data();
  const uint32_t* rows = p.index.data();
  uint32_t* ordered    = p.workspace.data();

  int shift = kBlockBits;
  while (n > kMostBuckets << shift) ++shift;

  std::array<int64_t, kMostBuckets> count{};
  for (int64_t i = 0; i < n; ++i) ++count[rows[i] >> shift];

  std::array<int64_t, kMostBuckets> end;  // of each bucket so far
  int64_t place = 0;
  for (int64_t b = 0; b < kMostBuckets; ++b) {
    end[b] = place;
    place += count[b] + kSpare;
  }
  for (int64_t i = 0; i < n; ++i) ordered[end[rows[i] >> shift]++] = rows[i];

  int64_t sum = 0;
  for (int64_t b = 0; b < kMostBuckets; ++b)
    for (int64_t i = end[b] - count[b]; i < end[b]; ++i) sum += table[ordered[i]];
  p.out(0) = sum;
}

}  // namespace fathom::lab::gather_sorted
