// Statistics of small, noisy samples: order statistics and counts, because means and variances of timings are
// not useful (heavy tails, several modes). No function drops a sample. Samples must be finite and, unless
// stated otherwise, not empty; anything else is a ContractError.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace fathom::measure {

double median(std::span<const double> samples);

// Hyndman and Fan's type 7 (linear between order statistics, the default of R and NumPy); 0 <= p <= 1.
double quantile(std::span<const double> samples, double p);
// The same for sorted samples, at least one.
double quantile_of_sorted(std::span<const double> order, double p);

// Quantiles at i / 63 for i = 0..63, minimum and maximum included: a committed record keeps these of a
// sample.
std::array<double, 64> quantiles64(std::span<const double> samples);

// Median of |x - median(x)|, not scaled to a standard deviation.
double median_absolute_deviation(std::span<const double> samples);

double geometric_mean(std::span<const double> positive);

// Autocorrelation at lag 1, in [-1, 1]; 0 for a constant series or fewer than three samples.
double lag1_autocorrelation(std::span<const double> series);

// Tukey's fences, 1.5 and 3 interquartile ranges outside the quartiles. For display only: a label, never a
// reason to drop a sample.
enum class Outlier { none, mild, severe };
std::vector<Outlier> label_outliers(std::span<const double> samples);

// Largest rank k such that [x(k), x(n+1-k)] (1-based order statistics) holds the median of n independent
// samples with at least this confidence: 2 P(Binomial(n, 1/2) < k) <= 1 - confidence. 0 when n is too small.
int64_t sign_test_rank(int64_t n, double confidence);

// Two-sided exact p-value of "the median is `centre`". Samples equal to it are not counted; 1 when none
// remains.
double sign_test_p_value(std::span<const double> samples, double centre = 0);

// The confidence that each of `comparisons` intervals needs, so that all hold together with `confidence`.
double bonferroni(double confidence, int64_t comparisons);

// Benjamini and Hochberg (1995): adjusted p-values in the given order. Rejecting all those <= q keeps the
// expected share of false discoveries below q. The input may be empty.
std::vector<double> benjamini_hochberg(std::span<const double> p_values);

}  // namespace fathom::measure
