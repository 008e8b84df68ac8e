#include "model/awq.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "model/calibration_samples.h"

namespace fathom::model {
namespace {

Awq scaled(View<const float, 2> w, const Calibration& calibration, const AwqOptions& options,
           int threads = 2) {
  ThreadPool pool(threads);
  auto result = awq(w, calibration, options, pool);
  EXPECT_TRUE(result) << result.error().message;
  return *std::move(result);
}

// Mean over tokens of |(W - Q) x|^2, where Q x is computed as a layer would: the codes' numbers times x / s.
double squared_error(View<const float, 2> w, const QuantizedMatrix& q, View<const float, 2> x) {
  double sum = 0;
  for (int64_t n = 0; n < w.extent(0); ++n)
    for (int64_t t = 0; t < x.extent(0); ++t) {
      double y = 0;
      for (int64_t k = 0; k < w.extent(1); ++k) {
        const auto i = static_cast<size_t>(k);
        const double number =
            q.grids[static_cast<size_t>(n * q.format.groups(q.columns) + k / q.format.group)].decode(
                q.codes[static_cast<size_t>(n * q.columns + k)]);
        const double input = static_cast<double>(x(t, k));
        y += number * (input / (q.input_scale.empty() ? 1 : static_cast<double>(q.input_scale[i]))) -
             static_cast<double>(w(n, k)) * input;
      }
      sum += y * y;
    }
  return sum / static_cast<double>(x.extent(0));
}

// A layer with one input that is 30 times as large as the others.
struct Planted {
  Samples w, x;
  Calibration calibration{128};

  explicit Planted(std::mt19937_64& random)
      : w(normal_samples(32, 128, random)), x(normal_samples(256, 128, random)) {
    for (int64_t t = 0; t < x.rows; ++t) x(t, 77) *= 30;
    calibration.add(x.view());
  }
};

TEST(Awq, FindsAPlantedOutlier) {
  std::mt19937_64 random(1);
  const Planted layer(random);
  const GroupFormat format{.group = 64};
  const Awq found = scaled(layer.w.view(), layer.calibration, {.format = format, .clip = false});
  EXPECT_GT(found.exponent, 0);
  std::vector<float> scales = found.matrix.input_scale;
  const float planted       = scales[77];
  std::ranges::sort(scales);
  EXPECT_EQ(planted, scales.back());
  EXPECT_GT(planted, 3 * scales[64]);  // of the median input
  const double rounded =
      squared_error(layer.w.view(), round_to_nearest(layer.w.view(), format), layer.x.view());
  EXPECT_LT(squared_error(layer.w.view(), found.matrix, layer.x.view()), rounded / 3);
}

// Every exponent by the formula: the weights scaled, rounded to nearest, and their error over the tokens.
TEST(Awq, TakesTheBestOfAllExponents) {
  std::mt19937_64 random(6);
  for (int problem = 0; problem < 4; ++problem) {
    const Samples w = normal_samples(6, 80, random);
    Samples x       = correlated_samples(100, 80, 5, 0.5f, random);
    for (int64_t t = 0; t < 100; ++t) x(t, 5) *= 8, x(t, 60) *= 20;
    Calibration calibration(80);
    calibration.add(x.view());
    const GroupFormat format{.bits = 3, .group = 32};
    double least = std::numeric_limits<double>::infinity(), best = 0;
    for (int e = 0; e < 20; ++e) {
      std::vector<float> scales;
      for (int64_t k = 0; k < 80; ++k)
        scales.push_back(static_cast<float>(std::pow(calibration.mean_magnitude(k), e / 20.0)));
      const auto [low, high] = std::ranges::minmax(scales);
      Samples scaled_w       = w;
      for (int64_t k = 0; k < 80; ++k) {
        float& scale = scales[static_cast<size_t>(k)];
        scale /= std::sqrt(low * high);
        for (int64_t n = 0; n < 6; ++n) scaled_w(n, k) *= scale;
      }
      QuantizedMatrix rounded = round_to_nearest(scaled_w.view(), format);
      rounded.input_scale     = scales;
      const double error      = squared_error(w.view(), rounded, x.view());
      if (error < least) least = error, best = e / 20.0;
    }
    const Awq found = scaled(w.view(), calibration, {.format = format, .clip = false});
    EXPECT_EQ(found.exponent, best);
    EXPECT_GT(best, 0);
    EXPECT_NEAR(found.loss, least, 1e-3 * least);
  }
}

TEST(Awq, ItsLossIsThatOfTheTokens) {
  std::mt19937_64 random(2);
  const Planted layer(random);
  for (const bool clip : {false, true})
    for (const bool symmetric : {false, true}) {
      const Awq found   = scaled(layer.w.view(), layer.calibration,
                                 {.format = {.group = 48, .symmetric = symmetric}, .clip = clip});
      const double loss = squared_error(layer.w.view(), found.matrix, layer.x.view());
      EXPECT_NEAR(found.loss, loss, 1e-9 * loss);
    }
}

TEST(Awq, IsNeverWorseThanRoundingAndClippingHelpsFewBits) {
  std::mt19937_64 random(3);
  for (int problem = 0; problem < 10; ++problem) {
    const Samples w = normal_samples(8, 96, random), x = correlated_samples(200, 96, 5, 0.5f, random);
    Calibration calibration(96);
    calibration.add(x.view());
    const GroupFormat format{.bits = 3, .group = 96};
    const double rounded = squared_error(w.view(), round_to_nearest(w.view(), format), x.view());
    const double plain   = scaled(w.view(), calibration, {.format = format, .clip = false}).loss;
    const double clipped = scaled(w.view(), calibration, {.format = format}).loss;
    EXPECT_LE(plain, rounded * (1 + 1e-9));
    EXPECT_LE(clipped, plain * (1 + 1e-9));  // one group: what is best for it is best for the output
  }
}

TEST(Awq, LeavesWeightsThatFitTheGridAlone) {
  std::mt19937_64 random(4);
  Samples w(4, 64);
  std::uniform_int_distribution<int> code(0, 15);
  for (int64_t n = 0; n < 4; ++n)
    for (int64_t k = 0; k < 64; ++k)
      w(n, k) = 0.25f * static_cast<float>((k == 0 ? 0 : k == 1 ? 15 : code(random)) - 6);
  const Samples x = correlated_samples(100, 64, 4, 0.5f, random);
  Calibration calibration(64);
  calibration.add(x.view());
  const Awq found = scaled(w.view(), calibration, {});
  EXPECT_EQ(found.exponent, 0);
  EXPECT_EQ(found.loss, 0);
  for (int64_t n = 0; n < 4; ++n)
    for (int64_t k = 0; k < 64; ++k)
      EXPECT_EQ(found.matrix.weight(n, k), static_cast<double>(w.view()(n, k)));
}

TEST(Awq, ThreadsChangeNothing) {
  std::mt19937_64 random(5);
  const Planted layer(random);
  const Awq one   = scaled(layer.w.view(), layer.calibration, {}, 1),
            three = scaled(layer.w.view(), layer.calibration, {}, 3);
  EXPECT_EQ(one.matrix.codes, three.matrix.codes);
  EXPECT_EQ(one.loss, three.loss);
}

TEST(Awq, EmptyLayersAndWrongWeights) {
  EXPECT_TRUE(scaled(Samples(0, 8).view(), Calibration(8), {}).matrix.codes.empty());
  EXPECT_EQ(scaled(Samples(3, 0).view(), Calibration(0), {}).loss, 0);
  Samples w(2, 4);
  w(0, 3) = std::numeric_limits<float>::infinity();
  ThreadPool pool(1);
  const auto wrong = awq(w.view(), Calibration(4), {}, pool);
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("output 0, input 3"), std::string::npos);
}

}  // namespace
}  // namespace fathom::model
