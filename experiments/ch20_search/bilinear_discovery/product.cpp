#include "product.h"

#include <algorithm>
#include <cmath>

#include "lab/metric.h"

namespace fathom::lab::bilinear_discovery {
namespace {

double rms(View<const float, 2> of) {
  double squares = 0;
  for (int64_t i = 0; i < of.size(); ++i) {
    const double x = of.data()[i];
    squares += x * x;
  }
  return of.size() ? std::sqrt(squares / static_cast<double>(of.size())) : 0;
}

Sum reference(const Product& p, int64_t i, int64_t j) {
  Sum sum{.length = p.n};
  for (int64_t k = 0; k < p.n; ++k) {
    const double product = static_cast<double>(p.a(i, k)) * p.b(k, j);
    sum.value += product;
    sum.magnitude += std::abs(product);
  }
  return sum;
}

}  // namespace

double fewest_flops(int64_t n, int levels) {
  const auto side = static_cast<double>(n);
  if (levels == 0 || n < 2) return 2 * side * side * side;
  const double even = static_cast<double>(n / 2 * 2);
  const double odd  = n % 2 ? 2 * (even * even + even * side + side * side) : 0;
  return 7 * fewest_flops(n / 2, levels - 1) + odd;
}

// Seven products bound an error by the norms of the matrices, not by the terms of the element: an element is
// a difference of sums in which terms of other rows and columns cancel (Higham, Accuracy and Stability of
// Numerical Algorithms, §23.2.2). In Strassen's scheme twelve terms stand in an element where the schoolbook
// has two, and their rounding errors add up like random ones, so each level multiplies the error by sqrt(6);
// two levels by 6. Each level adds five roundings in a row, one for either sum of blocks and three in an
// element of C.
void Product::check(Checker& checker) const {
  const double of_any_term = rms(a) * rms(b);
  checker.values_in_parallel("out", out, [this, of_any_term](int64_t i, int64_t j) {
    Sum sum       = reference(*this, i, j);
    sum.magnitude = std::max(sum.magnitude, 6.0 * static_cast<double>(n) * of_any_term);
    sum.length += 5 * kMostLevels;
    return sum;
  });
}

void Product::metrics(CallMetrics& metrics) const {
  const int64_t step = std::max<int64_t>(1, out.size() / 4096);
  double errors = 0, values = 0;
  // A step that is no divisor of a row meets all columns.
  for (int64_t at = 0; at < out.size(); at += step + 1) {
    const double value = reference(*this, at / n, at % n).value, error = out.data()[at] - value;
    errors += error * error;
    values += value * value;
  }
  if (values > 0) metrics["relative_rms_error"] = {std::sqrt(errors / values), "lower"};
}

}  // namespace fathom::lab::bilinear_discovery
