#include "kernels/quant/fp8_recipe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/dtype.h"
#include "kernels/quant/amax_history.h"

namespace fathom::kernels {
namespace {

using AmaxOf = DelayedScaling::AmaxOf;

const float kLargest = fp8_e4m3::max();

float amax_of(const std::vector<float>& x) {
  float amax = 0;
  for (const float v : x) amax = std::max(amax, std::abs(v));
  return amax;
}
std::vector<float> normal(float deviation, std::mt19937& random) {
  std::vector<float> x(4096);
  std::normal_distribution<float> from(0, deviation);
  for (float& v : x) v = from(random);
  return x;
}
int64_t saturated(const std::vector<float>& x, float scale) {
  return std::count_if(x.begin(), x.end(), [&](float v) { return std::abs(v) > scale * kLargest; });
}
// Of the numbers that the codes stand for, relative to x.
double rms_error(const std::vector<float>& x, float scale) {
  double errors = 0, squares = 0;
  for (const float v : x) {
    const double error = static_cast<double>(float(fp8_e4m3(v / scale))) * scale - v;
    errors += error * error;
    squares += static_cast<double>(v) * v;
  }
  return std::sqrt(errors / squares);
}

TEST(Fp8Recipe, AScaleMakesAmaxTheLargestCode) {
  for (const float amax : {1e-3f, 1.0f, 37.5f, 448.0f, 3e4f}) {
    const float scale = fp8_scale(amax, kLargest, 0);
    EXPECT_EQ(float(fp8_e4m3(amax / scale)), kLargest);
    EXPECT_EQ(float(fp8_e4m3(amax / fp8_scale(amax, kLargest, 3))), kLargest / 8);
  }
  EXPECT_EQ(fp8_scale(0, kLargest, 0), kSmallestScale);
}

TEST(Fp8Recipe, AHistoryKeepsALargeStepForItsLength) {
  for (const int length : {1, 2, 7, 1024}) {
    AmaxHistory history({.history = length}, kLargest);
    EXPECT_EQ(history.scale(), 1);  // nothing is known
    history.record(64);
    for (int step = 1; step < length; ++step) {
      history.record(1);
      ASSERT_EQ(history.scale(), fp8_scale(64, kLargest, 0)) << "step " << step << " of " << length;
    }
    history.record(1);  // the large one leaves
    EXPECT_EQ(history.scale(), fp8_scale(1, kLargest, 0));
  }
}

// Steps that are large in turn: the scale of the most recent one is wrong at every step.
TEST(Fp8Recipe, AHistoryDoesNotSwing) {
  std::mt19937 random(3);
  AmaxHistory most_recent({.of = AmaxOf::most_recent}, kLargest), largest({.history = 16}, kLargest);
  int64_t lost_by_most_recent = 0, lost_by_largest = 0;
  for (int step = 0; step < 64; ++step) {
    const std::vector<float> x = normal(step % 2 == 0 ? 8.0f : 1.0f, random);
    if (step >= 2) {
      lost_by_most_recent += saturated(x, most_recent.scale());
      lost_by_largest += saturated(x, largest.scale());
      // e4m3 has an exponent: a scale 8 times too large costs nothing.
      EXPECT_LT(rms_error(x, largest.scale()), 0.03);
    }
    most_recent.record(amax_of(x));
    largest.record(amax_of(x));
  }
  EXPECT_GT(lost_by_most_recent, 31 * 4096 / 4);  // of 31 large steps, what is beyond an eighth of amax
  EXPECT_LT(lost_by_largest, 64);
}

TEST(Fp8Recipe, AMarginIsRoomToGrow) {
  std::mt19937 random(4);
  for (const int margin : {0, 2}) {
    AmaxHistory history({.history = 4, .margin = margin}, kLargest);
    int64_t lost    = 0;
    float deviation = 1;
    for (int step = 0; step < 40; ++step, deviation *= 1.5f) {  // grows at every step
      const std::vector<float> x = normal(deviation, random);
      if (step > 0) lost += saturated(x, history.scale());
      history.record(amax_of(x));
    }
    if (margin == 0)
      EXPECT_GT(lost, 39);
    else
      EXPECT_EQ(lost, 0);
  }
}

TEST(Fp8Recipe, WhatIsNotFiniteIsNotRecorded) {
  AmaxHistory history({.history = 2}, kLargest);
  history.record(5);
  for (const float amax :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), 0.0f})
    history.record(amax);
  EXPECT_EQ(history.scale(), fp8_scale(5, kLargest, 0));
}

}  // namespace
}  // namespace fathom::kernels
