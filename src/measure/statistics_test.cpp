#include "measure/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/expect.h"
#include "measure/synthetic_rounds.h"

namespace fathom::measure {
namespace {

using Samples = std::vector<double>;

TEST(Statistics, MedianAndQuantilesOfKnownSamples) {
  EXPECT_EQ(median(Samples{7}), 7);
  EXPECT_EQ(median(Samples{3, 1}), 2);
  EXPECT_EQ(median(Samples{5, 1, 9}), 5);
  // Type 7 by hand: position 3 p. Types 5, 6 and 8 give other values at every one of these.
  const Samples four{40, 10, 30, 20};
  EXPECT_DOUBLE_EQ(quantile(four, 0), 10);
  EXPECT_DOUBLE_EQ(quantile(four, 0.1), 13);
  EXPECT_DOUBLE_EQ(quantile(four, 0.25), 17.5);
  EXPECT_DOUBLE_EQ(quantile(four, 0.9), 37);
  EXPECT_DOUBLE_EQ(quantile(four, 1), 40);
}

TEST(Statistics, Quantiles64AreEvenlySpacedWithBothEnds) {
  Samples ramp;
  for (int i = 126; i >= 0; --i) ramp.push_back(i);  // 127 = 2 * 63 + 1: every quantile is a sample
  const auto quantiles = quantiles64(ramp);
  for (size_t i = 0; i < 64; ++i) EXPECT_NEAR(quantiles[i], 2.0 * static_cast<double>(i), 1e-12);
  for (double q : quantiles64(Samples{4})) EXPECT_EQ(q, 4);
}

TEST(Statistics, DeviationMeanAndCorrelationOfKnownSamples) {
  EXPECT_DOUBLE_EQ(median_absolute_deviation(Samples{1, 2, 3, 4, 1000}), 1);
  EXPECT_NEAR(geometric_mean(Samples{0.5, 2, 8}), 2, 1e-15);
  EXPECT_DOUBLE_EQ(lag1_autocorrelation(Samples{1, -1, 1, -1}), -0.75);
  EXPECT_DOUBLE_EQ(lag1_autocorrelation(Samples{1, 1, -1, -1}), 0.25);
  EXPECT_EQ(lag1_autocorrelation(Samples{5, 5, 5, 5}), 0);
  EXPECT_EQ(lag1_autocorrelation(Samples{}), 0);
}

TEST(Statistics, RefusesWhatItCannotSummarise) {
  EXPECT_THROW(median(Samples{}), ContractError);
  EXPECT_THROW(median(Samples{1, std::nan("")}), ContractError);
  EXPECT_THROW(quantiles64(Samples{1, std::numeric_limits<double>::infinity()}), ContractError);
  EXPECT_THROW(quantile(Samples{1}, 1.01), ContractError);
  EXPECT_THROW(geometric_mean(Samples{1, 0}), ContractError);
  EXPECT_THROW(sign_test_rank(10, 1.0), ContractError);
  EXPECT_THROW(bonferroni(0.95, 0), ContractError);
}

TEST(Statistics, OutliersAreLabelledNotDropped) {
  Samples samples{0, 1, 2, 3, 4, 5, 6, 7, 8};  // quartiles 2 and 6: fences at -4, 12 and -10, 18
  EXPECT_EQ(label_outliers(samples), std::vector<Outlier>(9, Outlier::none));
  const Samples spiked{10, 11, 12, 13, 14, 15, 16, 27.9, 1000};  // quartiles 12 and 16: 6, 22 and 0, 28
  const auto labels = label_outliers(spiked);
  ASSERT_EQ(labels.size(), spiked.size());
  EXPECT_EQ(labels[6], Outlier::none);
  EXPECT_EQ(labels[7], Outlier::mild);
  EXPECT_EQ(labels[8], Outlier::severe);
  EXPECT_TRUE(label_outliers(Samples{}).empty());
}

// Catches an off-by-one in ranks or tails: every n up to 60 against Pascal's triangle in exact integers.
TEST(Statistics, SignTestRankEqualsExactBinomial) {
  for (int64_t n = 0; n <= 60; ++n) {
    std::vector<uint64_t> row{1};
    for (int64_t i = 1; i <= n; ++i) {
      row.push_back(0);
      for (size_t k = row.size() - 1; k > 0; --k) row[k] += row[k - 1];
    }
    for (double confidence : {0.5, 0.9, 0.95, 0.99}) {
      int64_t rank  = 0;
      uint64_t tail = 0;
      while (2 * static_cast<double>(tail += row[rank]) <= (1 - confidence) * std::exp2(n)) ++rank;
      EXPECT_EQ(sign_test_rank(n, confidence), rank) << n << " at " << confidence;
    }
  }
  EXPECT_EQ(sign_test_rank(5, 0.95), 0);
  EXPECT_EQ(sign_test_rank(6, 0.95), 1);
  EXPECT_NEAR(static_cast<double>(sign_test_rank(1'000'000, 0.95)), 500'000 - 1.96 * 500, 1);  // no underflow
}

TEST(Statistics, SignTestPValueIsExactAndSkipsTies) {
  EXPECT_DOUBLE_EQ(sign_test_p_value(Samples{1, 2, 3, 4, 5}), 2.0 / 32);
  EXPECT_NEAR(sign_test_p_value(Samples{-1, 2, 3, 4, 5, 0, 0}), 2 * 6.0 / 32, 1e-15);
  EXPECT_EQ(sign_test_p_value(Samples{-1, 1}), 1);
  EXPECT_EQ(sign_test_p_value(Samples{}), 1);
  EXPECT_DOUBLE_EQ(sign_test_p_value(Samples{1, 2, 3, 4, 5}, 10), 2.0 / 32);
}

TEST(Statistics, BonferroniSplitsTheError) {
  EXPECT_DOUBLE_EQ(bonferroni(0.95, 1), 0.95);
  EXPECT_DOUBLE_EQ(bonferroni(0.95, 5), 0.99);
}

// The definition: min over j of rank >= own of p_(j) m / j.
TEST(Statistics, BenjaminiHochbergEqualsItsDefinition) {
  EXPECT_TRUE(benjamini_hochberg({}).empty());
  Noisy noisy(3);
  for (size_t m : {size_t{1}, size_t{2}, size_t{7}, size_t{31}}) {
    Samples p;
    for (size_t i = 0; i < m; ++i) p.push_back(noisy.uniform());
    const Samples adjusted = benjamini_hochberg(p);
    for (size_t i = 0; i < m; ++i) {
      double least = 1;
      for (size_t j = 0; j < m; ++j) {
        if (p[j] < p[i]) continue;
        const auto rank = std::count_if(p.begin(), p.end(), [&](double other) { return other <= p[j]; });
        least           = std::min(least, p[j] * static_cast<double>(m) / static_cast<double>(rank));
      }
      EXPECT_NEAR(adjusted[i], least, 1e-15);
    }
  }
}

// Of 40 comparisons 10 differ. Catches an adjustment that does not adjust: raw p-values find 1.5 false ones a
// suite.
TEST(Statistics, BenjaminiHochbergBoundsFalseFinds) {
  Noisy noisy(4);
  constexpr int kSuites = 400;
  double false_share = 0, raw_false_share = 0, found_true = 0;
  for (int suite = 0; suite < kSuites; ++suite) {
    Samples p;
    for (int i = 0; i < 40; ++i)
      p.push_back(
          sign_test_p_value(synthetic_rounds(Machine::quiet, 40, noisy, 1, i < 10 ? std::log(1.05) : 0)));
    const auto share = [&](const Samples& values) {
      const auto below = [](double value) { return value <= 0.05; };
      const auto right = std::count_if(values.begin(), values.begin() + 10, below);
      const auto wrong = std::count_if(values.begin() + 10, values.end(), below);
      return wrong == 0 ? 0.0 : static_cast<double>(wrong) / static_cast<double>(wrong + right);
    };
    const Samples adjusted = benjamini_hochberg(p);
    false_share += share(adjusted) / kSuites;
    raw_false_share += share(p) / kSuites;
    found_true += static_cast<double>(std::count_if(adjusted.begin(), adjusted.begin() + 10,
                                                    [](double value) { return value <= 0.05; })) /
                  (10 * kSuites);
  }
  EXPECT_LE(false_share, 0.05);
  EXPECT_GT(raw_false_share, 0.05);
  EXPECT_GT(found_true, 0.95);
}

}  // namespace
}  // namespace fathom::measure
