// References for a layer of mlp.h, in double.
//
// A gradient is a sum at the end of a chain of sums, so each value carries the error that fp32 may have left
// in it, in units of round-off: of a sum its own, sqrt(K) sum|a b| as lab/check.h has it, and in quadrature
// what comes with its terms.
#pragma once

#include <cmath>
#include <vector>

#include "experiments/ch13_training/mlp.h"
#include "lab/problem.h"

namespace fathom::lab::mlp {

struct Rounded {
  double value = 0, error = 0;
};

class RoundedSum {
 public:
  void add(Rounded a, Rounded b = {.value = 1}) {
    value_ += a.value * b.value;
    terms_ += std::abs(a.value * b.value);
    carried_ += a.value * b.error * a.value * b.error + b.value * a.error * b.value * a.error;
    ++length_;
  }
  Rounded result() const { return {value_, std::sqrt(carried_ + length_ * terms_ * terms_)}; }

 private:
  double value_ = 0, terms_ = 0, carried_ = 0, length_ = 0;
};

// Rows of kModel or of hidden units.
class Table {
 public:
  Table(int64_t rows, int64_t columns) : columns_(columns), at_(static_cast<size_t>(rows * columns)) {}
  Rounded& operator()(int64_t row, int64_t column) {
    return at_[static_cast<size_t>(row * columns_ + column)];
  }

 private:
  int64_t columns_;
  std::vector<Rounded> at_;
};

// relu; a unit that is closed by more than an error lets nothing through.
inline Rounded open(Rounded z) {
  if (z.value > 0) return z;
  return {0, -z.value > 4 * 0x1p-24 * z.error ? 0 : z.error};
}
inline Rounded squared(Rounded z) { return {z.value * z.value, 2 * z.value * z.error + z.value * z.value}; }
inline Rounded twice_product(Rounded a, Rounded b) {
  const double value = 2 * a.value * b.value;
  return {value, std::hypot(2 * a.value * b.error, 2 * b.value * a.error) + std::abs(value)};
}

// A layer whose units are those of all experts; token t uses `hidden` of them, from t mod experts * hidden
// on.
struct Whole {
  View<const float, 2> w1, w2;
  int64_t tokens, experts, hidden;
  Table z{tokens, hidden}, dz{tokens, hidden};

  int64_t unit(int64_t token, int64_t h) const { return token % experts * hidden + h; }

  void forward(Table& x, Table& y) {  // y = x + W2 f(W1 x)
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<RoundedSum> sums(kModel);
      for (int64_t d = 0; d < kModel; ++d) sums[static_cast<size_t>(d)].add(x(t, d));
      for (int64_t h = 0; h < hidden; ++h) {
        RoundedSum sum;
        for (int64_t d = 0; d < kModel; ++d) sum.add(x(t, d), {.value = w1(unit(t, h), d)});
        z(t, h) = open(sum.result());
        for (int64_t d = 0; d < kModel; ++d)
          sums[static_cast<size_t>(d)].add(squared(z(t, h)), {.value = w2(unit(t, h), d)});
      }
      for (int64_t d = 0; d < kModel; ++d) y(t, d) = sums[static_cast<size_t>(d)].result();
    }
  }

  void backward(Table& dy, Table& dx) {  // dx = dy + W1^T dz
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<RoundedSum> sums(kModel);
      for (int64_t d = 0; d < kModel; ++d) sums[static_cast<size_t>(d)].add(dy(t, d));
      for (int64_t h = 0; h < hidden; ++h) {
        RoundedSum sum;
        for (int64_t d = 0; d < kModel; ++d) sum.add(dy(t, d), {.value = w2(unit(t, h), d)});
        dz(t, h) = twice_product(z(t, h), sum.result());
        for (int64_t d = 0; d < kModel; ++d)
          sums[static_cast<size_t>(d)].add(dz(t, h), {.value = w1(unit(t, h), d)});
      }
      for (int64_t d = 0; d < kModel; ++d) dx(t, d) = sums[static_cast<size_t>(d)].result();
    }
  }

  // Of a unit's first or second weights.
  Sum gradient(int64_t which, int64_t unit_of_all, int64_t d, Table& x, Table& dy) {
    RoundedSum sum;
    const int64_t h = unit_of_all % hidden;
    for (int64_t t = unit_of_all / hidden; t < tokens; t += experts)
      if (which == 0)
        sum.add(dz(t, h), x(t, d));
      else
        sum.add(squared(z(t, h)), dy(t, d));
    return {.value = sum.result().value, .magnitude = sum.result().error};
  }
};

}  // namespace fathom::lab::mlp
