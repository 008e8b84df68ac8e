#include "measure/latin_square.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/expect.h"

namespace fathom::measure {
namespace {

// Catches an order that favours a position: each variant has each position exactly once in every block.
TEST(LatinSquare, EveryVariantAtEveryPositionOncePerBlock) {
  for (int n : {1, 2, 3, 4, 5, 7, 8, 16, 17})
    for (uint64_t seed : {0u, 1u, 12345u})
      for (int64_t block = 0; block < 4; ++block) {
        std::set<std::pair<int, int>> seen;  // (variant, position)
        for (int64_t round = block * n; round < (block + 1) * n; ++round) {
          const auto order = round_order(n, round, seed);
          ASSERT_EQ(order.size(), static_cast<size_t>(n));
          for (int i = 0; i < n; ++i) {
            ASSERT_TRUE(order[i] >= 0 && order[i] < n);
            seen.insert({order[i], i});
          }
        }
        EXPECT_EQ(seen.size(), static_cast<size_t>(n * n)) << n << " variants, block " << block;
      }
}

// Catches a plain cyclic square, where b follows a in all rounds but one: over two blocks every ordered pair
// of neighbours occurs exactly twice.
TEST(LatinSquare, EveryVariantFollowsEveryOtherEquallyOften) {
  for (int n : {2, 3, 4, 5, 7, 8, 16, 17})
    for (int64_t pair = 0; pair < 3; ++pair) {
      std::map<std::pair<int, int>, int> follows;
      for (int64_t round = pair * 2 * n; round < (pair + 1) * 2 * n; ++round) {
        const auto order = round_order(n, round, 9);
        for (int i = 1; i < n; ++i) ++follows[{order[i - 1], order[i]}];
      }
      EXPECT_EQ(follows.size(), static_cast<size_t>(n * (n - 1)));
      for (const auto& [neighbours, count] : follows)
        EXPECT_EQ(count, 2) << n << ": " << neighbours.second << " after " << neighbours.first;
    }
}

TEST(LatinSquare, TwoVariantsRunAbbaOrBaab) {
  std::set<std::vector<int>> first_rounds;
  for (int64_t block = 0; block < 64; ++block) {
    const auto one = round_order(2, 2 * block, 5), two = round_order(2, 2 * block + 1, 5);
    EXPECT_EQ(one[0], two[1]);
    EXPECT_EQ(one[1], two[0]);
    first_rounds.insert(one);
  }
  EXPECT_EQ(first_rounds.size(), 2u) << "the start of a block must be random";
}

TEST(LatinSquare, SeedsRepeatAndDiffer) {
  int equal = 0;
  for (int64_t round = 0; round < 100; ++round) {
    EXPECT_EQ(round_order(6, round, 77), round_order(6, round, 77));
    equal += round_order(6, round, 77) == round_order(6, round, 78);
  }
  EXPECT_LT(equal, 10);  // by chance 100 / 720
}

TEST(LatinSquare, RefusesNothingToOrder) {
  EXPECT_THROW(round_order(0, 0, 1), ContractError);
  EXPECT_THROW(round_order(2, -1, 1), ContractError);
}

}  // namespace
}  // namespace fathom::measure
