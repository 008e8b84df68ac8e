#include "measure/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/expect.h"

namespace fathom::measure {
namespace {

std::vector<double> sorted(std::span<const double> samples) {
  FATHOM_EXPECT(!samples.empty(), "a statistic of no samples: measure at least one");
  FATHOM_EXPECT(std::all_of(samples.begin(), samples.end(), [](double x) { return std::isfinite(x); }),
                "a sample is not finite: report the run as invalid instead of summarising it");
  std::vector<double> order(samples.begin(), samples.end());
  std::sort(order.begin(), order.end());
  return order;
}

// Calls visit(k, P(Binomial(n, 1/2) <= k)) for k = 0, 1, ... while it returns true. Uses logarithms, because
// 2^-n underflows at n = 1075, and not lgamma, which writes a global variable.
template <class Visit>
void walk_lower_tail(int64_t n, Visit visit) {
  double log_probability = -static_cast<double>(n) * std::log(2.0), tail = 0;
  for (int64_t k = 0; k <= n; ++k) {
    tail += std::exp(log_probability);
    if (!visit(k, tail)) return;
    log_probability += std::log(static_cast<double>(n - k) / static_cast<double>(k + 1));
  }
}

}  // namespace

double median(std::span<const double> samples) { return quantile(samples, 0.5); }

double quantile_of_sorted(std::span<const double> order, double p) {
  const double position = p * static_cast<double>(order.size() - 1);
  const auto below      = static_cast<size_t>(position);
  const size_t above    = std::min(below + 1, order.size() - 1);
  return std::lerp(order[below], order[above], position - static_cast<double>(below));
}

double quantile(std::span<const double> samples, double p) {
  FATHOM_EXPECT(p >= 0 && p <= 1, "a quantile's probability lies outside [0, 1]");
  return quantile_of_sorted(sorted(samples), p);
}

std::array<double, 64> quantiles64(std::span<const double> samples) {
  const std::vector<double> order = sorted(samples);
  std::array<double, 64> quantiles;
  for (size_t i = 0; i < quantiles.size(); ++i)
    quantiles[i] = quantile_of_sorted(order, static_cast<double>(i) / (quantiles.size() - 1));
  return quantiles;
}

double median_absolute_deviation(std::span<const double> samples) {
  const double centre = median(samples);
  std::vector<double> deviations;
  deviations.reserve(samples.size());
  for (double x : samples) deviations.push_back(std::abs(x - centre));
  return median(deviations);
}

double geometric_mean(std::span<const double> positive) {
  FATHOM_EXPECT(!positive.empty(), "a geometric mean of nothing: exclude it from the report instead");
  double logs = 0;
  for (double x : positive) {
    FATHOM_EXPECT(x > 0 && std::isfinite(x), "a geometric mean takes finite values above 0");
    logs += std::log(x);
  }
  return std::exp(logs / static_cast<double>(positive.size()));
}

double lag1_autocorrelation(std::span<const double> series) {
  if (series.size() < 3) return 0;
  const double mean = std::accumulate(series.begin(), series.end(), 0.0) / static_cast<double>(series.size());
  double products = 0, squares = 0;
  for (size_t i = 0; i < series.size(); ++i) {
    squares += (series[i] - mean) * (series[i] - mean);
    if (i > 0) products += (series[i - 1] - mean) * (series[i] - mean);
  }
  return squares > 0 ? products / squares : 0;
}

std::vector<Outlier> label_outliers(std::span<const double> samples) {
  if (samples.empty()) return {};
  const std::vector<double> order = sorted(samples);
  const double q1 = quantile_of_sorted(order, 0.25), q3 = quantile_of_sorted(order, 0.75);
  const auto beyond = [&](double x, double ranges) {
    return x < q1 - ranges * (q3 - q1) || x > q3 + ranges * (q3 - q1);
  };
  std::vector<Outlier> labels;
  labels.reserve(samples.size());
  for (double x : samples)
    labels.push_back(beyond(x, 3) ? Outlier::severe : beyond(x, 1.5) ? Outlier::mild : Outlier::none);
  return labels;
}

int64_t sign_test_rank(int64_t n, double confidence) {
  FATHOM_EXPECT(n >= 0, "a sample cannot have a negative size");
  FATHOM_EXPECT(confidence > 0 && confidence < 1, "a confidence lies strictly between 0 and 1");
  int64_t rank = 0;
  walk_lower_tail(n, [&](int64_t k, double tail) {
    rank = k;
    return 2 * tail <= 1 - confidence;
  });
  return rank;
}

double sign_test_p_value(std::span<const double> samples, double centre) {
  int64_t below = 0, above = 0;
  for (double x : samples) {
    below += x < centre;
    above += x > centre;
  }
  double p_value = 1;
  walk_lower_tail(below + above, [&](int64_t k, double tail) {
    p_value = std::min(1.0, 2 * tail);
    return k < std::min(below, above);
  });
  return p_value;
}

double bonferroni(double confidence, int64_t comparisons) {
  FATHOM_EXPECT(comparisons >= 1, "Bonferroni needs at least one comparison");
  return 1 - (1 - confidence) / static_cast<double>(comparisons);
}

std::vector<double> benjamini_hochberg(std::span<const double> p_values) {
  const size_t n = p_values.size();
  std::vector<size_t> descending(n);
  std::iota(descending.begin(), descending.end(), size_t{0});
  std::sort(descending.begin(), descending.end(),
            [&](size_t a, size_t b) { return p_values[a] > p_values[b]; });
  std::vector<double> adjusted(n);
  double least = 1;
  for (size_t i = 0; i < n; ++i) {
    const double rank       = static_cast<double>(n - i);  // among ascending p-values, from 1
    least                   = std::min(least, p_values[descending[i]] * static_cast<double>(n) / rank);
    adjusted[descending[i]] = least;
  }
  return adjusted;
}

}  // namespace fathom::measure
