#include "load/arrivals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace fathom::load {
namespace {

std::vector<double> gaps_of(const std::vector<double>& times) {
  std::vector<double> gaps(times.size());
  std::adjacent_difference(times.begin(), times.end(), gaps.begin());
  return gaps;
}

double mean_of(const std::vector<double>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

double moment_of(const std::vector<double>& x, int order) {  // central moment of x over its mean
  const double mean = mean_of(x);
  double sum        = 0;
  for (const double value : x) sum += std::pow(value / mean - 1, order);
  return sum / static_cast<double>(x.size());
}

constexpr int64_t kMany = 200'000;

// A gamma variable of shape k has coefficient of variation 1/sqrt(k) and skewness 2/sqrt(k).
TEST(Arrivals, GapsAreGammaOfTheBurstinessAsked) {
  for (const double k : {0.25, 0.5, 1.0, 2.0, 9.0}) {
    const auto gaps = gaps_of(arrival_times({.request_rate = 7, .burstiness = k, .seed = 3}, kMany));
    EXPECT_NEAR(mean_of(gaps), 1 / 7.0, 1e-9);
    const double cv = std::sqrt(moment_of(gaps, 2));
    EXPECT_NEAR(cv * std::sqrt(k), 1, 0.02) << k;
    EXPECT_NEAR(moment_of(gaps, 3) / (cv * cv * cv) * std::sqrt(k) / 2, 1, 0.08) << k;
    for (const double gap : gaps) ASSERT_GE(gap, 0);
  }
}

// A share of exp(-t) of the gaps is longer than t means.
TEST(Arrivals, ABurstinessOfOneIsPoisson) {
  const auto gaps = gaps_of(arrival_times({.request_rate = 1, .seed = 11}, kMany));
  for (const double t : {0.1, 0.5, 1.0, 2.0, 4.0}) {
    double beyond = 0;
    for (const double gap : gaps) beyond += gap > t;
    const double p = std::exp(-t);
    EXPECT_NEAR(beyond / kMany, p, 5 * std::sqrt(p * (1 - p) / kMany)) << t;
  }
}

TEST(Arrivals, TheLastComesExactlyWhenTheRateSays) {
  for (const uint64_t seed : {0u, 1u, 2u})
    for (const int64_t n : {1, 2, 997})
      for (const double burstiness : {0.3, 1.0, static_cast<double>(INFINITY)}) {
        const auto times = arrival_times({.request_rate = 12.5, .burstiness = burstiness, .seed = seed}, n);
        ASSERT_EQ(times.size(), static_cast<size_t>(n));
        EXPECT_DOUBLE_EQ(times.back(), static_cast<double>(n) / 12.5);
      }
}

TEST(Arrivals, SeedsDecideAndNothingElse) {
  const auto of = [](uint64_t seed) { return arrival_times({.request_rate = 2, .seed = seed}, 50); };
  EXPECT_EQ(of(5), of(5));
  EXPECT_NE(of(5), of(6));
  EXPECT_NE(of(5), of(5 + (uint64_t{1} << 32)));
}

TEST(Arrivals, AnInfiniteRateIsAllAtOnceAndNoneIsNone) {
  EXPECT_EQ(arrival_times({}, 4), std::vector<double>(4, 0.0));
  EXPECT_TRUE(arrival_times({.request_rate = 3}, 0).empty());
}

TEST(Arrivals, AnInfiniteBurstinessIsAMetronome) {
  const auto times = arrival_times({.request_rate = 4, .burstiness = INFINITY}, 8);
  for (size_t i = 0; i < times.size(); ++i) EXPECT_NEAR(times[i], 0.25 * static_cast<double>(i + 1), 1e-12);
}

// Computed by hand for the rates 1, 2, 3 and 1, 2, 4.
TEST(Arrivals, RampsGrowFromRequestToRequest) {
  const auto times = [](Ramp::Shape shape, double end) {
    return arrival_times({.burstiness = INFINITY, .ramp = Ramp{shape, 1, end}}, 3);
  };
  const auto linear = times(Ramp::Shape::linear, 3), exponential = times(Ramp::Shape::exponential, 4);
  EXPECT_NEAR(linear[0], 1, 1e-12);
  EXPECT_NEAR(linear[1], 1 + 1 / 2.0, 1e-12);
  EXPECT_NEAR(linear[2], 1 + 1 / 2.0 + 1 / 3.0, 1e-12);
  EXPECT_NEAR(exponential[2], 1 + 1 / 2.0 + 1 / 4.0, 1e-12);
}

}  // namespace
}  // namespace fathom::load
