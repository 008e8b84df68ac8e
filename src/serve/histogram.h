// A histogram for Prometheus with exact sums.
#pragma once

#include <prometheus/client_metric.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace fathom::serve {

// Counts in whole units (nanoseconds, tokens), so sums are exact and comparable. prometheus::Histogram rounds
// its sums, and each has its own lock, so a reader may see a request in one histogram and not yet in another.
class Histogram {
 public:
  // `unit`: observed units for each unit of the bounds.
  explicit Histogram(std::span<const double> bounds, double unit = 1)
      : bounds_(bounds.begin(), bounds.end()), unit_(unit), counts_(bounds.size() + 1) {}
  // From counts made elsewhere: by bucket, and their sum.
  Histogram(std::span<const int64_t> bounds, std::span<const int64_t> counts, int64_t sum)
      : bounds_(bounds.begin(), bounds.end()), unit_(1), counts_(counts.begin(), counts.end()), sum_(sum) {}

  void observe(int64_t value) {
    const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), static_cast<double>(value) / unit_);
    ++counts_[static_cast<size_t>(bound - bounds_.begin())];
    sum_ += value;
  }

  // Adds counts made elsewhere, by the same bounds.
  void add(std::span<const uint32_t> counts, int64_t sum) {
    for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += counts[i];
    sum_ += sum;
  }

  std::optional<double> median() const {
    uint64_t all = 0, below = 0;
    for (const uint64_t count : counts_) all += count;
    for (size_t i = 0; i < bounds_.size(); below += counts_[i++]) {
      if (2 * (below + counts_[i]) < all || counts_[i] == 0) continue;
      const double from = i == 0 ? 0 : bounds_[i - 1];
      const double share =
          (static_cast<double>(all) / 2 - static_cast<double>(below)) / static_cast<double>(counts_[i]);
      return from + share * (bounds_[i] - from);
    }
    if (all == 0) return std::nullopt;
    return bounds_.back();
  }

  prometheus::ClientMetric::Histogram exported() const {
    prometheus::ClientMetric::Histogram histogram;
    for (size_t i = 0; i < counts_.size(); ++i) {
      histogram.sample_count += counts_[i];
      if (i < bounds_.size()) histogram.bucket.push_back({histogram.sample_count, bounds_[i]});
    }
    histogram.sample_sum = static_cast<double>(sum_) / unit_;
    return histogram;
  }

 private:
  std::vector<double> bounds_;
  double unit_;
  std::vector<uint64_t> counts_;  // by bucket; the last one is above all bounds
  int64_t sum_ = 0;
};

}  // namespace fathom::serve
