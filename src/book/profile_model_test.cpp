#include "book/profile_model.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fathom::book {
namespace {

Program two_parts(double share, double round) {
  return {.parts = 2, .share = {share, 1 - share}, .round = round};
}

// The golden value of the book: a tenth within one percentage point.
TEST(Profile, SamplesForATenthWithinOnePoint) {
  EXPECT_EQ(samples_needed(0.1, 0.01), 3458);
  EXPECT_EQ(samples_needed(0.5, 0.05), 385);
  EXPECT_NEAR(1.96 * deviation_by_law(0.1, 3458), 0.01, 1e-5);
}

TEST(Profile, EverySampleIsInAPart) {
  const Program program{.parts = 3, .share = {0.2, 0.3, 0.5}, .round = 0.37};
  for (const Timer timer : {Timer::periodic, Timer::by_lot})
    for (const int32_t samples : {0, 1, 125}) {
      int32_t counts[kMostParts];
      profile(program, timer, samples, 3, counts);
      EXPECT_EQ(counts[0] + counts[1] + counts[2], samples);
      for (int32_t i = 3; i < kMostParts; ++i) EXPECT_EQ(counts[i], 0);
    }
}

TEST(Profile, ByLotItScattersAsTheLawSays) {
  for (const double share : {0.1, 0.45}) {
    const Scatter found = scatter(two_parts(share, 1), Timer::by_lot, 125, 0, 1, 4000);
    EXPECT_NEAR(found.mean, share, 0.003);
    EXPECT_NEAR(found.deviation / deviation_by_law(share, 125), 1, 0.04);
    EXPECT_NEAR(found.covered, 0.95, 0.02);
  }
}

TEST(Profile, InStepAllSamplesAreOne) {
  const Scatter found = scatter(two_parts(0.1, 1), Timer::periodic, 125, 0, 1, 4000);
  EXPECT_NEAR(found.mean, 0.1, 0.015);
  EXPECT_NEAR(found.deviation, 0.3, 0.02);
  EXPECT_EQ(found.covered, 0);
  // So they are when the program makes two whole rounds between samples.
  EXPECT_NEAR(scatter(two_parts(0.1, 0.5), Timer::periodic, 125, 0, 1, 4000).deviation, 0.3, 0.02);
}

TEST(Profile, OneLongRoundIsSampledEvenly) {
  const Scatter found = scatter(two_parts(0.1, 125), Timer::periodic, 125, 0, 1, 4000);
  EXPECT_NEAR(found.mean, 0.1, 0.001);
  EXPECT_LE(found.deviation, 0.5 / 125 + 1e-9);  // 12 or 13 of 125
  EXPECT_EQ(found.covered, 1);
}

TEST(Profile, EqualSeedsGiveEqualProfiles) {
  int32_t one[kMostParts], same[kMostParts], other[kMostParts];
  profile(two_parts(0.4, 1), Timer::by_lot, 500, 7, one);
  profile(two_parts(0.4, 1), Timer::by_lot, 500, 7, same);
  profile(two_parts(0.4, 1), Timer::by_lot, 500, 8, other);
  EXPECT_EQ(one[0], same[0]);
  EXPECT_NE(one[0], other[0]);
}

}  // namespace
}  // namespace fathom::book
