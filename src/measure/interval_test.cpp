#include "measure/interval.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/expect.h"
#include "measure/statistics.h"
#include "measure/synthetic_rounds.h"

namespace fathom::measure {
namespace {

using Estimate        = std::optional<Interval> (*)(std::span<const double>, double);
constexpr int kTrials = 1000;
constexpr double kShift =
    0.03;  // a true value other than 0, so that an interval that ignores its input misses

struct Outcome {
  double missed = 0, absent = 0, median_width = 0;
};

Outcome simulate(Estimate estimate, Machine machine, int64_t rounds, double pace, double confidence) {
  Noisy noisy(17 + static_cast<uint64_t>(rounds));
  Outcome outcome;
  std::vector<double> widths;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto interval = estimate(synthetic_rounds(machine, rounds, noisy, pace, kShift), confidence);
    if (!interval) continue;
    outcome.missed += kShift < interval->lo || kShift > interval->hi;
    widths.push_back(interval->hi - interval->lo);
  }
  outcome.missed /= kTrials;
  outcome.median_width = widths.empty() ? 0 : median(widths);
  outcome.absent       = static_cast<double>(kTrials - static_cast<int>(widths.size())) / kTrials;
  return outcome;
}

TEST(Interval, IsMadeOfOrderStatistics) {
  const std::vector<double> six{3, 1, 6, 2, 5, 4};
  const auto interval = sign_test_interval(six, 0.95);
  ASSERT_TRUE(interval);
  EXPECT_EQ(interval->lo, 1);
  EXPECT_EQ(interval->median, 3.5);
  EXPECT_EQ(interval->hi, 6);
}

TEST(Interval, IsAbsentWhenTheSampleIsTooSmall) {
  for (size_t n : {0, 1, 2, 5}) {
    const std::vector<double> few(n, 1.0);
    EXPECT_FALSE(sign_test_interval(few, 0.95));
    EXPECT_FALSE(median_interval(few, 0.95));
    EXPECT_FALSE(ratio_interval(few, 0.95));
  }
  EXPECT_TRUE(median_interval(std::vector<double>(6, 1.0), 0.95));
  EXPECT_FALSE(median_interval(std::vector<double>(7, 1.0), 0.99));
  EXPECT_TRUE(median_interval(std::vector<double>(8, 1.0), 0.99));
}

// A single step: two runs of equal signs count as two samples, so there is no interval.
TEST(Interval, IsAbsentForASeriesThatOnlyDrifts) {
  std::vector<double> step(40, 0.0);
  std::fill(step.begin() + 20, step.end(), 1.0);
  EXPECT_LT(effective_sample_size(step), 6);
  EXPECT_FALSE(median_interval(step, 0.95));
}

TEST(Interval, OfRatiosIsTheExponentialOfLogs) {
  Noisy noisy(4);
  const auto logs           = synthetic_rounds(Machine::quiet, 41, noisy, 1, 0.7);
  const auto log_interval   = median_interval(logs, 0.95);
  const auto ratio_of_times = ratio_interval(logs, 0.95);
  ASSERT_TRUE(log_interval && ratio_of_times);
  EXPECT_DOUBLE_EQ(ratio_of_times->lo, std::exp(log_interval->lo));
  EXPECT_DOUBLE_EQ(ratio_of_times->median, std::exp(log_interval->median));
  EXPECT_DOUBLE_EQ(ratio_of_times->hi, std::exp(log_interval->hi));
}

TEST(Interval, RefusesSamplesThatAreNotFinite) {
  std::vector<double> samples(20, 1.0);
  samples[7] = std::nan("");
  EXPECT_THROW(sign_test_interval(samples, 0.95), ContractError);
  EXPECT_THROW(median_interval(samples, 0.95), ContractError);
}

TEST(Interval, EffectiveSampleSizeIsBounded) {
  EXPECT_EQ(effective_sample_size(std::vector<double>{}), 0);
  EXPECT_EQ(effective_sample_size(std::vector<double>{3}), 1);
  EXPECT_EQ(effective_sample_size(std::vector<double>(41, 3.0)), 41);  // constant: nothing is correlated
  std::vector<double> alternating;
  for (int i = 0; i < 40; ++i) alternating.push_back(i % 2);
  EXPECT_EQ(effective_sample_size(alternating), 40);  // negative correlation must not narrow
}

// For AR(1) with coefficient r the correlation of signs at lag k is (2/pi) asin(r^k): an exact reference.
// Catches an inflation that omits the far lags (0.8: the first lag alone gives 3.9 of 7.2) or counts them
// twice.
TEST(Interval, EffectiveSampleSizeMatchesTheory) {
  Noisy noisy(5);
  for (double coefficient : {0.0, 0.4, 0.8}) {
    double inflation = 1;
    for (int lag = 1; lag < 200; ++lag)
      inflation += 4 / std::numbers::pi * std::asin(std::pow(coefficient, lag));
    std::vector<double> sizes;
    for (int trial = 0; trial < 200; ++trial)
      sizes.push_back(
          effective_sample_size(synthetic_rounds(Machine::drifting, 2000, noisy, 1 - coefficient)));
    EXPECT_NEAR(median(sizes) * inflation / 2000, 1, 0.15) << "coefficient " << coefficient;
  }
}

// Rounds with an uncorrelated ratio: both intervals must reach their coverage for every distribution.
// Catches a rank that is one too far in, and any assumption of tails, of one mode, or of a steady machine.
TEST(Interval, CoversWhateverTheDistribution) {
  for (Machine machine : {Machine::quiet, Machine::heavy_tailed, Machine::spiky, Machine::bimodal,
                          Machine::walking, Machine::ramping})
    for (int64_t rounds : {20, 41, 100, 400})
      for (Estimate estimate : {sign_test_interval, median_interval}) {
        const Outcome outcome = simulate(estimate, machine, rounds, 1, 0.95);
        EXPECT_LE(outcome.missed, allowed(0.05, kTrials)) << name(machine) << " " << rounds;
      }
}

// Catches a confidence that is ignored, in either direction.
TEST(Interval, CoversAtOtherConfidences) {
  for (double confidence : {0.8, 0.99})
    for (int64_t rounds : {20, 101}) {
      const Outcome outcome = simulate(median_interval, Machine::quiet, rounds, 1, confidence);
      EXPECT_LE(outcome.missed, allowed(1 - confidence, kTrials)) << confidence << " " << rounds;
      if (rounds > 100) {
        EXPECT_GT(outcome.missed, (1 - confidence) / 4) << "needlessly wide at " << confidence;
      }
    }
}

// Correlated rounds, the reason for median_interval(). The plain interval fails here, which shows that these
// machines distinguish the two.
TEST(Interval, CoversWhenRoundsAreCorrelated) {
  struct Case {
    Machine machine;
    int64_t rounds;
    double pace;
  };
  for (const Case& c :
       {Case{Machine::drifting, 40, 0.4}, Case{Machine::drifting, 100, 0.4},
        Case{Machine::drifting, 200, 0.4}, Case{Machine::drifting, 400, 0.2}, Case{Machine::sticky, 40, 0.2},
        Case{Machine::sticky, 100, 0.2}, Case{Machine::sticky, 400, 0.05}}) {
    const Outcome plain = simulate(sign_test_interval, c.machine, c.rounds, c.pace, 0.95);
    const Outcome wide  = simulate(median_interval, c.machine, c.rounds, c.pace, 0.95);
    EXPECT_GT(plain.missed, 0.15) << name(c.machine) << " " << c.rounds;
    EXPECT_LE(wide.missed, allowed(0.05, kTrials)) << name(c.machine) << " " << c.rounds;
  }
}

// Bounds the extra width on independent rounds: an interval that is too wide would be safe but useless.
TEST(Interval, CorrectionCostsLittleWhenRoundsAreIndependent) {
  for (const auto& [rounds, most] : {std::pair{40, 1.4}, std::pair{100, 1.2}, std::pair{400, 1.1}})
    for (Machine machine : {Machine::quiet, Machine::spiky}) {
      const Outcome plain = simulate(sign_test_interval, machine, rounds, 1, 0.95);
      const Outcome wide  = simulate(median_interval, machine, rounds, 1, 0.95);
      EXPECT_LE(wide.median_width, most * plain.median_width) << name(machine) << " " << rounds;
      EXPECT_LE(wide.absent, 0.01) << name(machine) << " " << rounds;
    }
}

// Five variants, all equal to the baseline. Uncorrected, some interval excludes the truth in up to one
// experiment in five; with Bonferroni at most one in twenty.
TEST(Interval, BonferroniHoldsTheFamily) {
  Noisy noisy(6);
  int family = 0, uncorrected = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    bool missed = false, missed_uncorrected = false;
    for (int variant = 0; variant < 5; ++variant) {
      const auto series    = synthetic_rounds(Machine::quiet, 100, noisy);
      const auto excludes0 = [](const Interval& i) { return i.lo > 0 || i.hi < 0; };
      missed |= excludes0(*sign_test_interval(series, bonferroni(0.95, 5)));
      missed_uncorrected |= excludes0(*sign_test_interval(series, 0.95));
    }
    family += missed;
    uncorrected += missed_uncorrected;
  }
  EXPECT_LE(family, allowed(0.05, kTrials) * kTrials);
  EXPECT_GT(uncorrected, 0.10 * kTrials);
}

}  // namespace
}  // namespace fathom::measure
