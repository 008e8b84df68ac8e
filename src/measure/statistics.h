// Statistics of small, dirty samples: order statistics and counts, because means and variances of timings do
// not exist in any useful sense (heavy tails, several modes). No function drops a sample. Samples must be
// finite and, unless said otherwise, at least one; anything else is a broken contract.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace fathom::measure {

double median(std::span<const double> samples);

// Hyndman and Fan's type 7 (linear between order statistics, the default of R and NumPy); 0 <= p <= 1.
double quantile(std::span<const double> samples, double p);
// The same of samples that are sorted already, at least one.
double quantile_of_sorted(std::span<const double> order, double p);

// Quantiles at i / 63 for i = 0..63, minimum and maximum included: the shape of a sample in a committed
// record.
std::array<double, 64> quantiles64(std::span<const double> samples);

// Median of |x - median(x)|, not scaled to resemble a standard deviation.
double median_absolute_deviation(std::span<const double> samples);

double geometric_mean(std::span<const double> positive);

// Correlation of neighbours about the mean, in [-1, 1]; 0 for a constant series or fewer than three samples.
double lag1_autocorrelation(std::span<const double> series);

// Tukey's fences, 1.5 and 3 interquartile ranges outside the quartiles. For display only: a label, never a
// reason to drop a sample.
enum class Outlier { none, mild, severe };
std::vector<Outlier> label_outliers(std::span<const double> samples);

// Largest rank k such that [x(k), x(n+1-k)] (1-based order statistics) holds the median of n independent
// samples with at least this confidence: 2 P(Binomial(n, 1/2) < k) <= 1 - confidence. 0 when n is too small.
int64_t sign_test_rank(int64_t n, double confidence);

// Two-sided exact p-value of "the median is `centre`". Samples equal to it say nothing and are not counted;
// 1 when none remains.
double sign_test_p_value(std::span<const double> samples, double centre = 0);

// Confidence each of `comparisons` intervals needs so that all hold together with `confidence`.
double bonferroni(double confidence, int64_t comparisons);

// Benjamini and Hochberg (1995): adjusted p-values in the order given. Calling "found" all those <= q bounds
// the expected share of false finds by q. Empty in, empty out.
std::vector<double> benjamini_hochberg(std::span<const double> p_values);

}  // namespace fathom::measure
