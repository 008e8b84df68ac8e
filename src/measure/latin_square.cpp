#include "measure/latin_square.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "core/expect.h"

namespace fathom::measure {
namespace {

// Fisher-Yates with a generator that the standard defines bit by bit. std::shuffle may differ between
// libraries, and a stored seed must give the same order everywhere. The modulo's bias is n / 2^64.
std::vector<int> permutation(int n, std::mt19937_64& generator) {
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  for (int i = n - 1; i > 0; --i) std::swap(order[i], order[generator() % static_cast<uint64_t>(i + 1)]);
  return order;
}

std::mt19937_64 generator_for(uint64_t seed, uint64_t stream) {
  std::seed_seq words{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                      static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
  return std::mt19937_64(words);
}

}  // namespace

std::vector<int> round_order(int variants, int64_t round, uint64_t seed) {
  FATHOM_EXPECT(variants >= 1, "a round needs at least one variant");
  FATHOM_EXPECT(round >= 0, "rounds count from 0");
  const int64_t block = round / variants;
  const bool odd      = variants % 2 == 1;

  // The two blocks of an odd count share labels, since the second is the mirror that completes the first.
  std::mt19937_64 labels_generator = generator_for(seed, 2 * static_cast<uint64_t>(odd ? block / 2 : block));
  std::mt19937_64 rows_generator   = generator_for(seed, 2 * static_cast<uint64_t>(block) + 1);
  const std::vector<int> labels    = permutation(variants, labels_generator);
  const std::vector<int> rows      = permutation(variants, rows_generator);
  const int row                    = rows[round % variants];

  std::vector<int> order(variants);
  for (int i = 0; i < variants; ++i) {
    // 0, 1, n-1, 2, n-2, ...: successive differences 1, -2, 3, -4, ... are all distinct modulo an even n.
    const int step = i % 2 == 1 ? (i + 1) / 2 : variants - i / 2;
    order[i]       = labels[(row + step) % variants];
  }
  if (odd && block % 2 == 1) std::reverse(order.begin(), order.end());
  return order;
}

}  // namespace fathom::measure
