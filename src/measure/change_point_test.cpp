#include "measure/change_point.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "core/expect.h"
#include "measure/synthetic_rounds.h"

namespace fathom::measure {
namespace {

// Run medians around 100 with 1 % noise, `shift` more from run `at` on.
std::vector<double> history(int runs, int at, double shift, Noisy& noisy, bool heavy = false) {
  std::vector<double> values;
  for (int i = 0; i < runs; ++i)
    values.push_back(100 *
                     std::exp(0.01 * (heavy ? noisy.cauchy() : noisy.normal()) + (i >= at ? shift : 0)));
  return values;
}

TEST(ChangePoint, NoneInShortOrConstantHistories) {
  EXPECT_TRUE(change_points(std::vector<double>{}).empty());
  EXPECT_TRUE(change_points(std::vector<double>{1}).empty());
  EXPECT_TRUE(change_points(std::vector<double>{1, 1, 2, 2}).empty());
  EXPECT_TRUE(change_points(std::vector<double>(50, 3.0)).empty());
}

TEST(ChangePoint, FindsAStepAndItsLevels) {
  std::vector<double> values(12, 5.0);
  values.resize(24, 7.0);
  const auto found = change_points(values);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].index, 12);
  EXPECT_EQ(found[0].before, 5);
  EXPECT_EQ(found[0].after, 7);
  EXPECT_LE(found[0].p_value, 0.01);
}

TEST(ChangePoint, FindsTwoStepsInOrder) {
  Noisy noisy(1);
  auto values = history(90, 30, 0.05, noisy);
  for (size_t i = 60; i < 90; ++i) values[i] *= std::exp(-0.10);
  const auto found = change_points(values);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_NEAR(static_cast<double>(found[0].index), 30, 2);
  EXPECT_NEAR(static_cast<double>(found[1].index), 60, 2);
  EXPECT_NEAR(found[0].before, 100, 1);
  EXPECT_NEAR(found[0].after, 105, 1);
  EXPECT_NEAR(found[1].before, 105, 1);
  EXPECT_NEAR(found[1].after, 95, 1);
}

// Catches a search without a test, or with a separate test for each split: quiet histories, Gaussian and
// Cauchy, raise an alarm in 5 % of cases at a significance of 5 %.
TEST(ChangePoint, FalseAlarmsAreAsRareAsAsked) {
  constexpr int kTrials = 1000;
  for (bool heavy : {false, true}) {
    Noisy noisy(2);
    int alarms = 0;
    for (int trial = 0; trial < kTrials; ++trial)
      alarms +=
          !change_points(history(30, 30, 0, noisy, heavy),
                         {.significance = 0.05, .permutations = 199, .seed = static_cast<uint64_t>(trial)})
               .empty();
    EXPECT_LE(alarms, allowed(0.05, kTrials) * kTrials);
    EXPECT_GE(alarms, 0.02 * kTrials) << "so strict that it cannot be powerful";
  }
}

// 3 % at 1 % of noise, ten runs after the step, also when the noise is Cauchy (where means would drown) and
// 10 %.
TEST(ChangePoint, DetectsAndPlacesALevelShift) {
  constexpr int kTrials = 200;
  for (const auto& [heavy, shift] : {std::pair{false, 0.03}, std::pair{true, 0.10}}) {
    Noisy noisy(3);
    int detected = 0, placed = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      const auto found = change_points(history(40, 30, shift, noisy, heavy), {.permutations = 299});
      detected += !found.empty();
      for (const ChangePoint& change : found) placed += std::abs(change.index - 30) <= 2;
    }
    EXPECT_GE(detected, 0.9 * kTrials) << shift;
    EXPECT_GE(placed, 0.8 * kTrials) << shift;
  }
}

// One outlier is not a level. Catches a statistic of values instead of ranks.
TEST(ChangePoint, IgnoresASingleBadRun) {
  Noisy noisy(4);
  int alarms = 0;
  for (int trial = 0; trial < 100; ++trial) {
    auto values = history(30, 30, 0, noisy);
    values[20] *= 10;
    alarms += !change_points(values, {.permutations = 199}).empty();
  }
  EXPECT_LE(alarms, 4);
}

TEST(ChangePoint, RefusesBrokenInput) {
  EXPECT_THROW(change_points(std::vector<double>{1, std::nan(""), 2, 3, 4, 5}), ContractError);
  EXPECT_THROW(change_points(std::vector<double>{1, 2}, {.min_stretch = 0}), ContractError);
}

}  // namespace
}  // namespace fathom::measure
