#include "book/noise_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace fathom::book {
namespace {

constexpr Estimator kEstimators[] = {Estimator::mean, Estimator::median, Estimator::minimum,
                                     Estimator::paired_ratio};
constexpr Design kDesigns[]       = {Design::a_then_b, Design::alternating, Design::tossed_pairs};
constexpr int kTrials             = 2000;
constexpr double kThreeSigma      = 0.05 + 3 * 0.00487;  // of a share of 5 % in so many trials

double false_alarms(const Noise& noise, Design design, Estimator estimator, int pairs = 30) {
  const Claims found = claims({.noise = noise, .design = design, .pairs = pairs}, estimator, 1, kTrials);
  return static_cast<double>(found.slower + found.faster) / kTrials;
}

Runs simulated(const Experiment& experiment, uint64_t seed) {
  static Runs runs;
  simulate(experiment, seed, runs);
  return runs;
}

// The golden values of the book: an A/A test of interleaved pairs keeps the nominal rate under every noise
// that both runs of a pair share; with drift, A and then B does not.
TEST(NoiseModel, InterleavedPairsStayAtTheNominalRate) {
  for (const Noise& noise : {Noise{}, Noise{.drift = 0.05}, Noise{.outliers = 0.1}, Noise{.clock = 0.1},
                             Noise{.jitter = 0.02, .drift = 0.1, .outliers = 0.05, .clock = 0.2}})
    for (int pairs : {6, 7, 30, 97}) {
      const double rate = false_alarms(noise, Design::tossed_pairs, Estimator::paired_ratio, pairs);
      EXPECT_LT(rate, kThreeSigma) << pairs;
      EXPECT_GT(rate, 0.01) << pairs;  // an interval that never alarms would be too wide
    }
}

TEST(NoiseModel, DriftFoolsASequentialComparison) {
  const Noise drift{.drift = 0.05};
  for (Estimator estimator : kEstimators) {
    EXPECT_GT(false_alarms(drift, Design::a_then_b, estimator), 0.5) << static_cast<int>(estimator);
    EXPECT_LT(false_alarms(drift, Design::tossed_pairs, estimator), kThreeSigma)
        << static_cast<int>(estimator);
  }
}

// Without what lasts from run to run, order does not matter and every interval is honest.
TEST(NoiseModel, IndependentRunsNeedNoDesign) {
  for (Design design : kDesigns)
    for (Estimator estimator : kEstimators)
      for (double outliers : {0.0, 0.05}) {
        const double rate = false_alarms({.outliers = outliers}, design, estimator);
        EXPECT_LT(rate, 0.07) << static_cast<int>(estimator);
        EXPECT_GT(rate, 0.01) << static_cast<int>(estimator);
      }
}

TEST(NoiseModel, AStickyClockFoolsASequentialComparison) {
  const Noise clock{.clock = 0.1};
  EXPECT_GT(false_alarms(clock, Design::a_then_b, Estimator::mean), 0.2);
  EXPECT_LT(false_alarms(clock, Design::tossed_pairs, Estimator::mean), kThreeSigma);
}

// What lasts for the whole experiment and differs between the variants no order removes.
TEST(NoiseModel, NoDesignSavesFromLayout) {
  for (Design design : kDesigns)
    EXPECT_GT(false_alarms({.layout = 0.02}, design, Estimator::paired_ratio), 0.5);
}

TEST(NoiseModel, PairsFindWhatDriftHides) {
  const Experiment paired{
      .noise = {.clock = 0.1}, .design = Design::tossed_pairs, .pairs = 30, .difference = 0.02};
  EXPECT_GT(claims(paired, Estimator::paired_ratio, 1, 500).slower, 450);
  EXPECT_LT(claims(paired, Estimator::mean, 1, 500).slower, 250);
  EXPECT_EQ(claims(paired, Estimator::paired_ratio, 1, 500).faster, 0);
}

TEST(NoiseModel, TheSameSeedIsTheSameExperiment) {
  const Experiment experiment{
      .noise = {.drift = 0.1, .outliers = 0.1}, .design = Design::tossed_pairs, .pairs = 31};
  const Runs one = simulated(experiment, 7), two = simulated(experiment, 7), other = simulated(experiment, 8);
  EXPECT_TRUE(std::equal(one.a, one.a + 31, two.a));
  EXPECT_FALSE(std::equal(one.a, one.a + 31, other.a));
}

TEST(NoiseModel, DesignsOrderTheRuns) {
  const Noise quiet{.jitter = 0, .drift = 1};
  const Runs sequential = simulated({quiet, Design::a_then_b, 3, 0}, 1);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(sequential.is_b[i], i >= 3);
  EXPECT_DOUBLE_EQ(sequential.a[0], 1);
  EXPECT_DOUBLE_EQ(sequential.b[2], 2);
  EXPECT_DOUBLE_EQ(sequential.a[1], 1.2);
  const Runs alternating = simulated({quiet, Design::alternating, 3, 0}, 1);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(alternating.is_b[i], i % 2 == 1);
  int b_first = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Runs tossed = simulated({quiet, Design::tossed_pairs, 10, 0}, seed);
    for (int i = 0; i < 20; i += 2) {
      EXPECT_NE(tossed.is_b[i], tossed.is_b[i + 1]);
      b_first += tossed.is_b[i];
    }
  }
  EXPECT_NEAR(b_first, 500, 80);
}

TEST(NoiseModel, EstimatorsOfHandMadeRuns) {
  std::vector<double> a(8), b(8);
  for (int i = 0; i < 8; ++i) {
    a[i] = 10 + i;
    b[i] = 2 * a[i];
  }
  for (Estimator estimator : kEstimators)
    EXPECT_DOUBLE_EQ(estimate(estimator, a.data(), b.data(), 8).value, 2);
  const Ratio paired = estimate(Estimator::paired_ratio, a.data(), b.data(), 8);
  EXPECT_DOUBLE_EQ(paired.low, 2);
  EXPECT_DOUBLE_EQ(paired.high, 2);
  // Means 13.5 and 27; both have a standard error of 0.8660 in 13.5, and Welch gives 14 degrees: t = 2.1448.
  const Ratio mean = estimate(Estimator::mean, a.data(), b.data(), 8);
  EXPECT_NEAR(mean.high, 2 + 2 * 2.1448 * std::sqrt(2 * 0.75) / 13.5, 1e-4);
  EXPECT_NEAR(mean.low, 4 - mean.high, 1e-12);
  // k = 5 of 8 + 8: 2 * 8/16 * 7/15 * 6/14 * 5/13 * 4/12 = 2.6 %; k = 4: 7.7 %.
  const Ratio minimum = estimate(Estimator::minimum, a.data(), b.data(), 8);
  EXPECT_DOUBLE_EQ(minimum.low, 20.0 / 14);
  EXPECT_DOUBLE_EQ(minimum.high, 28.0 / 10);
}

TEST(NoiseModel, FewRunsGiveNoInterval) {
  const double a[] = {1, 1, 1, 1, 1}, b[] = {3, 3, 3, 3, 3};
  for (Estimator estimator : kEstimators) EXPECT_EQ(estimate(estimator, a, b, 0).value, 1);
  for (Estimator estimator : kEstimators) {
    const Ratio one = estimate(estimator, a, b, 1);
    EXPECT_EQ(one.value, 3);
    EXPECT_EQ(one.low, 0);
    EXPECT_TRUE(std::isinf(one.high));
  }
  EXPECT_EQ(estimate(Estimator::paired_ratio, a, b, 5).low, 0);
  EXPECT_EQ(claims({.pairs = 0}, Estimator::mean, 1, 10).slower, 0);
}

TEST(NoiseModel, RanksAreThoseOfTheBinomial) {
  EXPECT_EQ(sign_test_rank(5), 0);
  EXPECT_EQ(sign_test_rank(6), 1);
  EXPECT_EQ(sign_test_rank(30), 10);
  EXPECT_EQ(sign_test_rank(100), 40);  // the tables' values
  for (int n = 6; n <= 20; ++n) {
    int missed_at = 0, missed_above = 0;  // of all 2^n outcomes
    for (int coins = 0; coins < 1 << n; ++coins) {
      const int heads = __builtin_popcount(static_cast<unsigned>(coins)), rank = sign_test_rank(n);
      missed_at += heads < rank || n - heads < rank;
      missed_above += heads < rank + 1 || n - heads < rank + 1;
    }
    EXPECT_LE(missed_at, 0.05 * (1 << n)) << n;
    EXPECT_GT(missed_above, 0.05 * (1 << n)) << n;
  }
}

TEST(NoiseModel, FastestRunsByCountingSubsets) {
  EXPECT_EQ(fastest_run_length(0), 0);
  EXPECT_EQ(fastest_run_length(2), 0);
  for (int n = 3; n <= 9; ++n) {
    const int k = fastest_run_length(n);
    int all = 0, alike = 0, alike_shorter = 0;  // which of 2n places in order of speed are A's
    for (unsigned places = 0; places < 1u << (2 * n); ++places) {
      if (__builtin_popcount(places) != n) continue;
      ++all;
      const unsigned first = (1u << k) - 1, shorter = first >> 1;
      alike += (places & first) == first || (places & first) == 0;
      alike_shorter += (places & shorter) == shorter || (places & shorter) == 0;
    }
    if (k == 0) continue;
    EXPECT_LE(alike, 0.05 * all) << n;
    EXPECT_GT(alike_shorter, 0.05 * all) << n;
  }
}

TEST(NoiseModel, QuantilesOfTheTables) {
  EXPECT_NEAR(student_quantile(5), 2.5706, 3e-3);
  EXPECT_NEAR(student_quantile(10), 2.2281, 2e-4);
  EXPECT_NEAR(student_quantile(30), 2.0423, 5e-5);
  EXPECT_NEAR(student_quantile(1e9), 1.96, 1e-4);
  EXPECT_NEAR(wilson_low(5, 100), 0.0215, 1e-4);
  EXPECT_NEAR(wilson_high(5, 100), 0.1118, 1e-4);
  EXPECT_EQ(wilson_low(0, 10), 0);
  EXPECT_EQ(wilson_high(0, 0), 1);
}

}  // namespace
}  // namespace fathom::book
