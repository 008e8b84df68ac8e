#include "model/calibration.h"

#include <cmath>

#include "core/expect.h"

namespace fathom::model {

double dot(const double* a, const double* b, int64_t n) {
  double sum[4] = {};
  int64_t i     = 0;
  for (; i + 4 <= n; i += 4)
    for (int s = 0; s < 4; ++s) sum[s] += a[i + s] * b[i + s];
  for (; i < n; ++i) sum[0] += a[i] * b[i];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

Calibration::Calibration(int64_t inputs)
    : inputs_(inputs),
      products_(static_cast<size_t>(inputs * inputs)),
      magnitudes_(static_cast<size_t>(inputs)) {}

void Calibration::add(View<const float, 2> x) {
  FATHOM_EXPECT(x.extent(1) == inputs_, "calibration tokens have the layer's number of inputs");
  std::vector<double> row(static_cast<size_t>(inputs_));
  for (int64_t t = 0; t < x.extent(0); ++t) {
    for (int64_t i = 0; i < inputs_; ++i) {
      row[static_cast<size_t>(i)] = x(t, i);
      magnitudes_[static_cast<size_t>(i)] += std::abs(row[static_cast<size_t>(i)]);
    }
    for (int64_t i = 0; i < inputs_; ++i) {
      const double factor = row[static_cast<size_t>(i)];
      double* sums        = products_.data() + at(i, 0);
      for (int64_t j = 0; j < inputs_; ++j) sums[j] += factor * row[static_cast<size_t>(j)];
    }
  }
  tokens_ += x.extent(0);
}

double Calibration::mean_squared_error(std::span<const double> d, int64_t first) const {
  double sum = 0;
  for (size_t i = 0; i < d.size(); ++i) {
    if (d[i] == 0) continue;
    sum += d[i] * dot(d.data(), products_.data() + at(first + static_cast<int64_t>(i), first),
                      static_cast<int64_t>(d.size()));
  }
  return mean(sum);
}

}  // namespace fathom::model
