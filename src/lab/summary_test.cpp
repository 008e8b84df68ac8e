#include "lab/summary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace fathom::lab {
namespace {

bool held(Prediction prediction, double measured) {
  VariantRecord record;
  record.share_of_limit = measured;
  record.ratio          = Ratio{measured, measured, measured};
  score_prediction(record, prediction);
  return record.prediction.value().held.value();
}

TEST(Time, GivesTheRatesOfTheDeclaredWork) {
  VariantRecord record{.bytes_read = 3000, .bytes_written = 1000, .metrics = {{"tokens", {64, "higher"}}}};
  set_time(record, {2000, 2000, 2000});  // ns
  EXPECT_DOUBLE_EQ(record.metrics.at("bytes_per_s").value, 2e9);
  EXPECT_DOUBLE_EQ(record.metrics.at("tokens_per_s").value, 32e6);
  EXPECT_EQ(record.metrics.at("tokens_per_s").better, "higher");
  EXPECT_EQ(record.metrics.count("samples_per_s"), 0u) << "it counts none";
  EXPECT_EQ(record.metrics.count("flops_per_s"), 0u);
}

TEST(Prediction, AtLeastMeansAtLeast) {
  EXPECT_TRUE(held(predict::ratio_at_least(2), 2));
  EXPECT_TRUE(held(predict::ratio_at_least(2), 20));
  EXPECT_FALSE(held(predict::ratio_at_least(2), 1.999));
  EXPECT_FALSE(held(predict::share_at_least(0.8), 0.79));
}

TEST(Prediction, AValueMeansWithinTenPercent) {
  EXPECT_TRUE(held(predict::ratio(2), 1.8));
  EXPECT_TRUE(held(predict::ratio(2), 2.2));
  EXPECT_FALSE(held(predict::ratio(2), 1.79));
  EXPECT_FALSE(held(predict::ratio(2), 2.21));
}

TEST(Prediction, NoneHoldsBeyondTheLimit) {
  EXPECT_TRUE(held(predict::share_at_least(0.8), 1.02));
  EXPECT_FALSE(held(predict::share_at_least(0.8), 1.03)) << "then the declared limit is not the limit";
  EXPECT_FALSE(held(predict::share(1), 1.05));
  EXPECT_TRUE(held(predict::ratio(1), 1.05)) << "a ratio has no such bound";
}

TEST(Prediction, WithoutAMeasurementItHasNoScore) {
  VariantRecord record;
  score_prediction(record, predict::share(0.5));
  EXPECT_EQ(record.prediction->text, "share 0.5");
  EXPECT_FALSE(record.prediction->held.has_value());
}

TEST(RatioOfFewRounds, OneRoundHasNoInterval) {
  EXPECT_FALSE(ratio_of_few_rounds({}));
  EXPECT_FALSE(ratio_of_few_rounds({0.1}));
}

TEST(RatioOfFewRounds, OfSixItIsTheRange) {
  const auto ratio = ratio_of_few_rounds({0.3, 0.1, 0.2, 0.4, 0.6, 0.5});
  ASSERT_TRUE(ratio);
  EXPECT_NEAR(ratio->median, std::exp(0.35), 1e-12);
  EXPECT_NEAR(ratio->lo, std::exp(0.1), 1e-12);
  EXPECT_NEAR(ratio->hi, std::exp(0.6), 1e-12);
}

TEST(RatioOfFewRounds, OfThreeItIsStudents) {
  // Mean 0.2, deviation 0.1: 0.2 +- 4.303 * 0.1 / sqrt(3).
  const auto ratio = ratio_of_few_rounds({0.1, 0.2, 0.3});
  ASSERT_TRUE(ratio);
  EXPECT_NEAR(std::log(ratio->lo), 0.2 - 0.24844, 1e-4);
  EXPECT_NEAR(std::log(ratio->hi), 0.2 + 0.24844, 1e-4);
}

// Two equal variants, three rounds of noise: few may be called faster or slower than the other.
TEST(RatioOfFewRounds, RarelyAccusesEquals) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> noise(0, 0.2);
  constexpr int kTrials = 2000;
  int wrong             = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto ratio = ratio_of_few_rounds({noise(random), noise(random), noise(random)});
    wrong += ratio->lo > 1 || ratio->hi < 1;
  }
  EXPECT_LE(wrong, kTrials * 6 / 100);  // the range alone: 25 %
}

}  // namespace
}  // namespace fathom::lab
