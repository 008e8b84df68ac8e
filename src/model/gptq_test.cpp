#include "model/gptq.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "model/calibration_samples.h"

namespace fathom::model {
namespace {

Gptq quantized(View<const float, 2> w, const Calibration& calibration, const GptqOptions& options,
               int threads = 2) {
  ThreadPool pool(threads);
  auto result = gptq(w, calibration, options, pool);
  EXPECT_TRUE(result) << result.error().message;
  return *std::move(result);
}

Calibration calibrated(const Samples& x) {
  Calibration calibration(x.columns);
  calibration.add(x.view());
  return calibration;
}

void expect_same(const QuantizedMatrix& a, const QuantizedMatrix& b) {
  EXPECT_EQ(a.codes, b.codes);
  ASSERT_EQ(a.grids.size(), b.grids.size());
  for (size_t g = 0; g < a.grids.size(); ++g) {
    EXPECT_EQ(a.grids[g].scale, b.grids[g].scale) << "group " << g;
    EXPECT_EQ(a.grids[g].zero, b.grids[g].zero) << "group " << g;
  }
}

// Mean over tokens of |(W - Q) x|^2, from the tokens themselves.
double output_error(View<const float, 2> w, const QuantizedMatrix& q, View<const float, 2> x) {
  double sum = 0;
  for (int64_t n = 0; n < w.extent(0); ++n)
    for (int64_t t = 0; t < x.extent(0); ++t) {
      double error = 0;
      for (int64_t k = 0; k < w.extent(1); ++k)
        error += (static_cast<double>(w(n, k)) - q.weight(n, k)) * static_cast<double>(x(t, k));
      sum += error * error;
    }
  return sum / static_cast<double>(x.extent(0));
}

using Matrix = std::vector<std::vector<double>>;

Matrix damped_moments(const Calibration& calibration, double damping) {
  const auto K = static_cast<size_t>(calibration.inputs());
  Matrix h(K, std::vector<double>(K));
  double trace = 0;
  for (size_t i = 0; i < K; ++i) {
    for (size_t j = 0; j < K; ++j)
      h[i][j] = calibration.second_moment(static_cast<int64_t>(i), static_cast<int64_t>(j));
    trace += h[i][i];
  }
  for (size_t i = 0; i < K; ++i) h[i][i] += damping * trace / static_cast<double>(K);
  return h;
}

// The inverse of the part of h from `first` on, by Gauss-Jordan elimination with pivots.
Matrix inverse_from(const Matrix& h, size_t first) {
  const size_t n = h.size() - first;
  Matrix a(n, std::vector<double>(2 * n));
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) a[i][j] = h[first + i][first + j];
    a[i][n + i] = 1;
  }
  for (size_t c = 0; c < n; ++c) {
    size_t pivot = c;
    for (size_t r = c; r < n; ++r)
      if (std::abs(a[r][c]) > std::abs(a[pivot][c])) pivot = r;
    std::swap(a[c], a[pivot]);
    const double d = a[c][c];
    for (double& x : a[c]) x /= d;
    for (size_t r = 0; r < n; ++r) {
      if (r == c) continue;
      const double factor = a[r][c];
      for (size_t j = 0; j < 2 * n; ++j) a[r][j] -= factor * a[c][j];
    }
  }
  Matrix inverse(n, std::vector<double>(n));
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j) inverse[i][j] = a[i][n + j];
  return inverse;
}

// Optimal Brain Quantization in a fixed order, as the paper derives GPTQ from it: the inverse is computed
// anew for the inputs that are left. O(K^4).
QuantizedMatrix by_definition(View<const float, 2> w, const Matrix& h, const GroupFormat& format) {
  const auto K = static_cast<size_t>(w.extent(1));
  QuantizedMatrix q(format, w.extent(0), w.extent(1));
  std::vector<Matrix> inverses;
  for (size_t i = 0; i < K; ++i) inverses.push_back(inverse_from(h, i));
  for (int64_t n = 0; n < w.extent(0); ++n) {
    std::vector<double> left;
    for (size_t k = 0; k < K; ++k) left.push_back(static_cast<double>(w(n, static_cast<int64_t>(k))));
    for (size_t i = 0; i < K; ++i) {
      const auto k = static_cast<int64_t>(i), g = k / format.group;
      if (k % format.group == 0)
        q.grid(n, g) =
            fit_grid(std::span(left).subspan(i, std::min(static_cast<size_t>(format.group), K - i)), format);
      const int code    = q.grid(n, g).encode(left[i], format.bits);
      q.code(n, k)      = static_cast<uint8_t>(code);
      const double lost = left[i] - q.grid(n, g).decode(code);
      for (size_t j = i; j < K; ++j) left[j] -= lost / inverses[i][0][0] * inverses[i][0][j - i];
    }
  }
  return q;
}

TEST(Gptq, WithUncorrelatedInputsItRoundsToNearest) {
  std::mt19937_64 random(1);
  for (const int64_t columns : {1, 16, 70, 130})
    for (const GroupFormat& format : {GroupFormat{}, GroupFormat{.symmetric = true}, GroupFormat{.group = 16},
                                      GroupFormat{.bits = 3, .group = 64}})
      for (const bool act_order : {false, true}) {
        const Samples w = normal_samples(9, columns, random);
        Samples x(columns, columns);  // a diagonal of different magnitudes
        for (int64_t k = 0; k < columns; ++k) x(k, k) = static_cast<float>(1 + k * 7 % 11);
        expect_same(quantized(w.view(), calibrated(x), {.format = format, .act_order = act_order}).matrix,
                    round_to_nearest(w.view(), format));
      }
}

TEST(Gptq, AgreesWithTheDefinition) {
  std::mt19937_64 random(2);
  for (const int64_t columns : {1, 2, 7, 24, 50})
    for (const GroupFormat& format : {GroupFormat{}, GroupFormat{.bits = 3, .group = 8, .symmetric = true}}) {
      SCOPED_TRACE(testing::Message() << columns << " inputs, groups of " << format.group);
      const Samples w               = normal_samples(12, columns, random),
                    x               = correlated_samples(60, columns, 3, 0.3f, random);
      const Calibration calibration = calibrated(x);
      for (const double damping : {0.01, 0.3})
        expect_same(quantized(w.view(), calibration, {.format = format, .damping = damping}).matrix,
                    by_definition(w.view(), damped_moments(calibration, damping), format));
    }
}

// With one group the grid is the same in any order, so that act_order is the definition with the inputs
// sorted.
TEST(Gptq, WithActOrderItAgreesWithTheDefinitionOnSortedInputs) {
  std::mt19937_64 random(9);
  constexpr int64_t kInputs = 23;
  const Samples w = normal_samples(12, kInputs, random), x = correlated_samples(60, kInputs, 3, 0.3f, random);
  std::vector<int64_t> order(kInputs);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, std::greater{},
                    [moments = calibrated(x)](int64_t k) { return moments.second_moment(k, k); });
  Samples sorted_w(12, kInputs), sorted_x(60, kInputs);
  for (int64_t i = 0; i < kInputs; ++i) {
    const int64_t k = order[static_cast<size_t>(i)];
    for (int64_t n = 0; n < 12; ++n) sorted_w(n, i) = w.view()(n, k);
    for (int64_t t = 0; t < 60; ++t) sorted_x(t, i) = x.view()(t, k);
  }
  const QuantizedMatrix got  = quantized(w.view(), calibrated(x), {.act_order = true}).matrix,
                        want = by_definition(sorted_w.view(), damped_moments(calibrated(sorted_x), 0.01), {});
  for (int64_t n = 0; n < 12; ++n)
    for (int64_t i = 0; i < kInputs; ++i)
      EXPECT_EQ(got.weight(n, order[static_cast<size_t>(i)]), want.weight(n, i)) << n << ", " << i;
}

TEST(Gptq, BlocksAndThreadsChangeNothing) {
  std::mt19937_64 random(3);
  const Samples w = normal_samples(37, 300, random), x = correlated_samples(500, 300, 8, 0.3f, random);
  const Calibration calibration = calibrated(x);
  for (const bool act_order : {false, true}) {
    const GroupFormat format{.group = 32};
    const Gptq one = quantized(w.view(), calibration, {.format = format, .act_order = act_order}, 1);
    for (const int64_t block : {1, 16, 32, 256, 1024}) {
      SCOPED_TRACE(block);
      const Gptq other =
          quantized(w.view(), calibration, {.format = format, .block = block, .act_order = act_order}, 3);
      expect_same(one.matrix, other.matrix);
      EXPECT_NEAR(other.loss, one.loss, 1e-9 * one.loss);
    }
  }
}

TEST(Gptq, ItsLossIsTheQuadraticFormOfTheErrors) {
  std::mt19937_64 random(4);
  const Samples w = normal_samples(5, 40, random), x = correlated_samples(100, 40, 4, 0.5f, random);
  const Calibration calibration = calibrated(x);
  const Matrix h                = damped_moments(calibration, 0.05);
  for (const bool act_order : {false, true}) {
    const Gptq q =
        quantized(w.view(), calibration, {.format = {.group = 64}, .damping = 0.05, .act_order = act_order});
    double loss = 0;
    for (int64_t n = 0; n < 5; ++n)
      for (int64_t i = 0; i < 40; ++i)
        for (int64_t j = 0; j < 40; ++j)
          loss += (static_cast<double>(w.view()(n, i)) - q.matrix.weight(n, i)) *
                  h[static_cast<size_t>(i)][static_cast<size_t>(j)] *
                  (static_cast<double>(w.view()(n, j)) - q.matrix.weight(n, j));
    EXPECT_NEAR(q.loss, loss, 1e-9 * loss);
  }
}

// The grid is the same for all, so that the best of all 4^5 codes of an output is a bound.
TEST(Gptq, LiesBetweenTheBestCodesAndRounding) {
  constexpr int64_t kInputs = 5;
  std::mt19937_64 random(5);
  double best = 0, ours = 0, rounded = 0;
  for (int problem = 0; problem < 60; ++problem) {
    const Samples w               = normal_samples(1, kInputs, random),
                  x               = correlated_samples(20, kInputs, 2, 0.2f, random);
    const Calibration calibration = calibrated(x);
    const GptqOptions options{.format = {.bits = 2}, .damping = 0};
    const Gptq q            = quantized(w.view(), calibration, options);
    const GroupGrid grid    = q.matrix.grids[0];
    double least            = std::numeric_limits<double>::infinity();
    std::vector<double> off = std::vector<double>(kInputs);
    for (int codes = 0; codes < 1 << (2 * kInputs); ++codes) {
      for (int64_t k = 0; k < kInputs; ++k)
        off[static_cast<size_t>(k)] = static_cast<double>(w.view()(0, k)) - grid.decode(codes >> (2 * k) & 3);
      least = std::min(least, calibration.mean_squared_error(off));
    }
    EXPECT_GE(q.loss, least * (1 - 1e-9));
    best += least, ours += q.loss;
    rounded += output_error(w.view(), round_to_nearest(w.view(), options.format), x.view());
  }
  EXPECT_LT(ours, 4 * best);
  EXPECT_LT(ours, 0.6 * rounded);
}

TEST(Gptq, HalvesTheErrorOfUnseenCorrelatedInputs) {
  std::mt19937_64 random(6);
  const Samples w = normal_samples(32, 130, random), x = correlated_samples(1024, 130, 8, 0.3f, random);
  // The same directions for both halves: the first calibrates, the second is measured.
  const View<const float, 2> seen(x.numbers.data(), {512, 130}), unseen(&x.view()(512, 0), {512, 130});
  Calibration calibration(130);
  calibration.add(seen);
  const GroupFormat format{.group = 64};
  const double rounded = output_error(w.view(), round_to_nearest(w.view(), format), unseen);
  const double ours =
      output_error(w.view(), quantized(w.view(), calibration, {.format = format}).matrix, unseen);
  const double ordered = output_error(
      w.view(), quantized(w.view(), calibration, {.format = format, .act_order = true}).matrix, unseen);
  EXPECT_LT(ours, rounded / 4);  // a quarter of the squares
  EXPECT_LT(ordered, rounded / 4);
}

TEST(Gptq, AnInputThatIsAlwaysZeroGetsWeightsOfZero) {
  std::mt19937_64 random(7);
  const Samples w = normal_samples(3, 20, random);
  Samples x       = correlated_samples(50, 20, 3, 0.5f, random);
  for (int64_t t = 0; t < 50; ++t) x(t, 13) = 0;
  for (const bool act_order : {false, true}) {
    const Gptq q = quantized(w.view(), calibrated(x), {.act_order = act_order});
    for (int64_t n = 0; n < 3; ++n) EXPECT_EQ(q.matrix.weight(n, 13), 0);
  }
}

TEST(Gptq, NoOutputsAndNoInputs) {
  EXPECT_TRUE(quantized(Samples(0, 8).view(), calibrated(Samples(0, 8)), {}).matrix.codes.empty());
  EXPECT_EQ(quantized(Samples(3, 0).view(), Calibration(0), {}).matrix.bits(), 0);
}

TEST(Gptq, SaysWhatItCannotQuantize) {
  std::mt19937_64 random(8);
  ThreadPool pool(1);
  Samples w           = normal_samples(2, 4, random);
  const Samples x     = normal_samples(3, 4, random);  // three tokens, four inputs: H is singular
  const auto singular = gptq(w.view(), calibrated(x), {.damping = 0}, pool);
  ASSERT_FALSE(singular);
  EXPECT_NE(singular.error().message.find("raise the damping"), std::string::npos);
  EXPECT_TRUE(gptq(w.view(), calibrated(x), {}, pool));
  w(1, 2)          = std::numeric_limits<float>::quiet_NaN();
  const auto wrong = gptq(w.view(), calibrated(x), {}, pool);
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("output 1, input 2"), std::string::npos);
}

TEST(GroupQuantization, GridsReachTheirLimitsAndZero) {
  const std::vector<double> weights = {-1, 0.5, 2};
  const GroupGrid plain = fit_grid(weights, {}), symmetric = fit_grid(weights, {.symmetric = true});
  EXPECT_NEAR(plain.decode(0), -1, 0.01);
  EXPECT_NEAR(plain.decode(15), 2, 0.01);
  EXPECT_EQ(plain.round(0, 4), 0);
  EXPECT_EQ(symmetric.zero, 8);
  EXPECT_NEAR(symmetric.scale, 4.0 / 15, 1e-3);
  EXPECT_EQ(fit_grid(std::vector<double>{0, 0}, {}).round(0, 4), 0);
  EXPECT_NEAR(fit_grid(std::vector<double>{3, 5}, {}).decode(15), 5, 0.01);  // from zero, not from 3
  EXPECT_NEAR(fit_grid(weights, {}, 0.5).decode(15), 1, 0.06);
}

TEST(GroupQuantization, BitsCountScalesAndZeroPoints) {
  EXPECT_EQ(QuantizedMatrix({}, 2, 256).bits(), 2 * (256 * 4 + 2 * (16 + 4)));
  EXPECT_EQ(QuantizedMatrix({.symmetric = true}, 2, 256).bits(), 2 * (256 * 4 + 2 * 16));
  EXPECT_EQ(QuantizedMatrix({}, 1, 130).bits(), 130 * 4 + 2 * (16 + 4));
}

}  // namespace
}  // namespace fathom::model
