#include "book/payoff_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace fathom::book {
namespace {

// Chapter 24's exercises.
TEST(Payoff, GoldenValues) {
  EXPECT_NEAR(whole_ratio({.part = 0.3, .of_limit = 0.8, .ratio = 100}), 1.0638, 1e-4);
  EXPECT_NEAR(whole_ratio({.part = 0.3, .ratio = 1e12}), 1.4286, 1e-4);
  const Attempt service{.ratio = 1.25, .bill = 1000, .months = 6, .chance = 0.5, .cost = 400, .upkeep = 20};
  EXPECT_NEAR(value(service, service.months), 140, 1e-9);
  EXPECT_NEAR(least_chance(service), 400.0 / 1080, 1e-9);
  EXPECT_NEAR(pays_after({.ratio = 2, .bill = 100, .months = 24, .cost = 800}), 16, 1e-9);
}

TEST(Payoff, NothingIsFasterThanItsLimit) {
  EXPECT_DOUBLE_EQ(possible_ratio({.of_limit = 0.5, .ratio = 3}), 2);
  EXPECT_DOUBLE_EQ(possible_ratio({.of_limit = 0.5, .ratio = 1.5}), 1.5);
  EXPECT_DOUBLE_EQ(possible_ratio({.ratio = 3}), 3);
  EXPECT_DOUBLE_EQ(whole_ratio({.part = 1, .of_limit = 1, .ratio = 3}), 1);
}

TEST(Payoff, WhatNeverPays) {
  for (const Attempt& attempt : {Attempt{.ratio = 1, .bill = 100, .months = 9, .cost = 1},
                                 Attempt{.ratio = 2, .bill = 100, .months = 9, .cost = 1, .upkeep = 50}}) {
    EXPECT_TRUE(std::isinf(least_chance(attempt)));
    EXPECT_TRUE(std::isinf(pays_after(attempt)));
    EXPECT_DOUBLE_EQ(value(attempt, 9), -1);
  }
  EXPECT_LT(saving({.ratio = 0.5, .bill = 100}), 0) << "a loss that was kept";
}

// The laws of the chapter for attempts drawn at random: the value is zero at the least chance and after the
// months that a certain success needs, and no idea is worth more than perfection.
TEST(Payoff, TheLawsHold) {
  std::mt19937_64 generator(1);
  const auto draw = [&](double low, double high) {
    return low + (high - low) * static_cast<double>(generator() >> 11) * 0x1p-53;
  };
  for (int trial = 0; trial < 1000; ++trial) {
    Attempt attempt{.part     = draw(0.01, 1),
                    .of_limit = draw(0.01, 1),
                    .ratio    = draw(1, 20),
                    .bill     = draw(1, 1000),
                    .months   = draw(1, 60),
                    .chance   = draw(0, 1),
                    .cost     = draw(0, 1000),
                    .upkeep   = draw(0, 10)};
    EXPECT_LE(value(attempt, attempt.months), value_of_perfection(attempt) + 1e-6);
    EXPECT_LE(whole_ratio(attempt), 1 / (1 - headroom(attempt)) + 1e-9);
    if (saving(attempt) <= 0) continue;
    const double months = pays_after(attempt);
    attempt.chance      = least_chance(attempt);
    EXPECT_NEAR(value(attempt, attempt.months), 0, 1e-6);
    attempt.chance = 1;
    EXPECT_NEAR(value(attempt, months), 0, 1e-6);
  }
}

}  // namespace
}  // namespace fathom::book
