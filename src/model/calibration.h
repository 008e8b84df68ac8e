// What weight quantizers need to know of a layer's inputs: their second moments and mean magnitudes, summed
// over calibration tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/view.h"

namespace fathom::model {

// The sum of a(i) b(i), in four sums that the CPU adds side by side.
double dot(const double* a, const double* b, int64_t n);

class Calibration {
 public:
  explicit Calibration(int64_t inputs);

  // x: [T, inputs], one row for each token, finite.
  void add(View<const float, 2> x);

  int64_t inputs() const { return inputs_; }
  int64_t tokens() const { return tokens_; }
  // The means of x_i x_j and of |x_i| over the tokens; 0 without tokens.
  double second_moment(int64_t i, int64_t j) const { return mean(products_[at(i, j)]); }
  double mean_magnitude(int64_t i) const { return mean(magnitudes_[static_cast<size_t>(i)]); }

  // sum_ij d_i d_j second_moment(first + i, first + j): the mean of (sum_i d_i x_(first + i))^2, the squared
  // error of an output whose weights are wrong by d.
  double mean_squared_error(std::span<const double> d, int64_t first = 0) const;

 private:
  size_t at(int64_t i, int64_t j) const { return static_cast<size_t>(i * inputs_ + j); }
  double mean(double sum) const { return tokens_ == 0 ? 0 : sum / static_cast<double>(tokens_); }

  int64_t inputs_, tokens_ = 0;
  std::vector<double> products_;  // [inputs, inputs], symmetric
  std::vector<double> magnitudes_;
};

}  // namespace fathom::model
