#include "lab/summary.h"

#include <gtest/gtest.h>

namespace fathom::lab {
namespace {

bool held(Prediction prediction, double measured) {
  VariantRecord record;
  record.share_of_limit = measured;
  record.ratio          = Ratio{measured, measured, measured};
  score_prediction(record, prediction);
  return record.prediction.value().held.value();
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

}  // namespace
}  // namespace fathom::lab
