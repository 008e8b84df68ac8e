#include "kernels/attention/attention_scores.h"

#include <gtest/gtest.h>

namespace fathom::kernels {
namespace {

TEST(AttentionScores, AlibiFallsWithTheDistance) {
  const float slopes[] = {0.5f, 0.25f};
  const Alibi alibi{slopes};
  EXPECT_EQ(alibi(3, 0, 0), 3);
  EXPECT_EQ(alibi(3, 0, 4), 1);
  EXPECT_EQ(alibi(3, 1, 4), 2);
  EXPECT_EQ(alibi(3, 0, -4), 5);  // a key behind the query
}

// Keys 2, 1, 0, -1, -2 positions before the query, and farther ones on both sides.
TEST(AttentionScores, RelativeBiasIsThatOfTheNearestInReach) {
  const float bias[] = {1, 2, 3, 4, 5, 10, 20, 30, 40, 50};
  const RelativeBias relative{bias, 2};
  const int distances[]  = {7, 3, 2, 1, 0, -1, -2, -3, -7};
  const float of_first[] = {1, 1, 1, 2, 3, 4, 5, 5, 5};
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(relative(0.5f, 0, distances[i]), 0.5f + of_first[i]) << distances[i];
    EXPECT_EQ(relative(0.5f, 1, distances[i]), 0.5f + 10 * of_first[i]) << distances[i];
  }
  const RelativeBias one_for_all{bias, 0};
  EXPECT_EQ(one_for_all(0, 3, 100), 4);
  EXPECT_EQ(one_for_all(0, 3, -100), 4);
}

}  // namespace
}  // namespace fathom::kernels
