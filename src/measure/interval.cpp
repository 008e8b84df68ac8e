#include "measure/interval.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "measure/statistics.h"

namespace fathom::measure {
namespace {

// The 1-based ranks are `rank` and n + 1 - rank.
std::optional<Interval> between_ranks(std::span<const double> samples, int64_t rank) {
  if (rank < 1) return std::nullopt;
  const double centre = median(samples);  // first: it rejects samples that cannot be sorted
  std::vector<double> order(samples.begin(), samples.end());
  std::sort(order.begin(), order.end());
  return Interval{
      .median = centre, .lo = order[rank - 1], .hi = order[order.size() - static_cast<size_t>(rank)]};
}

// 1 + 2 sum of the autocorrelations of the signs about the median; at least 1.
double variance_inflation(std::span<const double> series) {
  const auto n        = static_cast<int64_t>(series.size());
  const double centre = median(series);
  std::vector<double> signs;
  signs.reserve(series.size());
  for (double x : series) signs.push_back((x > centre) - (x < centre));

  const auto covariance = [&](int64_t lag) {
    double sum = 0;
    for (int64_t i = 0; i + lag < n; ++i) sum += signs[i] * signs[i + lag];
    return sum;
  };
  const double variance = covariance(0);
  if (variance == 0) return 1;  // every sample equals the median

  double inflation = -1, previous = 2;
  int64_t lags = 0;  // on both sides of zero, with lag zero once
  for (int64_t lag = 0; lag + 1 < n / 2; lag += 2) {
    const double pair = (covariance(lag) + covariance(lag + 1)) / variance;
    if (pair <= 0) break;
    previous = std::min(previous, pair);
    inflation += 2 * previous;
    lags = 2 * (lag + 1) + 1;
  }
  const double share_of_lags = static_cast<double>(lags) / static_cast<double>(n);
  return std::max(1.0, inflation / std::max(0.05, 1 - share_of_lags));
}

}  // namespace

std::optional<Interval> sign_test_interval(std::span<const double> samples, double confidence) {
  return between_ranks(samples, sign_test_rank(static_cast<int64_t>(samples.size()), confidence));
}

double effective_sample_size(std::span<const double> series) {
  const auto n = static_cast<double>(series.size());
  return n < 2 ? n : std::max(1.0, n / variance_inflation(series));
}

std::optional<Interval> median_interval(std::span<const double> series, double confidence) {
  const auto n         = static_cast<int64_t>(series.size());
  const auto effective = static_cast<int64_t>(effective_sample_size(series));
  const int64_t rank   = sign_test_rank(effective, confidence);
  if (rank < 1) return std::nullopt;
  // Rank k of n_eff is at the share (k - 1/2) / n_eff of the order: take the same share of n, rounded
  // outwards.
  const double share = (static_cast<double>(rank) - 0.5) / static_cast<double>(effective);
  return between_ranks(series, static_cast<int64_t>(static_cast<double>(n) * share + 0.5));
}

std::optional<Interval> ratio_interval(std::span<const double> log_ratios, double confidence) {
  const std::optional<Interval> logs = median_interval(log_ratios, confidence);
  if (!logs) return std::nullopt;
  return Interval{.median = std::exp(logs->median), .lo = std::exp(logs->lo), .hi = std::exp(logs->hi)};
}

}  // namespace fathom::measure
