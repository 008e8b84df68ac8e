// The reference of decode attention: one row and query head in double, with the tolerance of a kernel's
// result.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <tuple>
#include <vector>

#include "core/dtype.h"
#include "kernels/attention/reference_dot.h"
#include "lab/problem.h"

namespace fathom::lab::decode_row {

struct KeyAndValue {
  const bf16 *key, *value;
};

struct Query {
  const bf16* numbers;
  int64_t size;            // how many
  double scale;            // positive
  int64_t first, context;  // positions first .. context - 1 are in reach
  std::function<KeyAndValue(int64_t position)> at;
  // What becomes of scale q . k, `distance` positions before the last one; null: nothing.
  std::function<double(double product, int64_t distance)> score = nullptr;
};

class DecodeRow {
 public:
  explicit DecodeRow(const Query& query) : size_(query.size) {
    double max_score = -INFINITY, total = 0;
    for (int64_t j = query.first; j < query.context; ++j) {
      const KeyAndValue row  = query.at(j);
      const kernels::Dot dot = kernels::dot(query.numbers, row.key, query.size);
      const double product = query.scale * dot.value, magnitude = query.scale * dot.size;
      const double score = query.score ? query.score(product, query.context - 1 - j) : product;
      values_.push_back(row.value);
      weights_.push_back(score);
      magnitudes_.push_back(magnitude + std::abs(score - product));
      max_score = std::max(max_score, score);
    }
    for (double& weight : weights_) total += weight = std::exp(weight - max_score);
    for (double& weight : weights_) weight /= total;
  }

  // Dimension d. Weights are rounded to bf16 for the tensor cores: these errors are independent, so their
  // squares add up. Sums are in fp32, and an absolute error of a score is a relative error of its weight:
  // hence 1 + its magnitude. Both are one magnitude in units of bf16's round-off, which is 2^16 of fp32's.
  Sum at(int64_t d) const {
    double value = 0, squares = 0, absolute = 0;
    for (size_t i = 0; i < weights_.size(); ++i) {
      const double term = weights_[i] * static_cast<double>(static_cast<float>(values_[i][d]));
      value += term;
      squares += term * term;
      absolute += std::abs(term) * (1 + magnitudes_[i]);
    }
    const double roundings = std::sqrt(static_cast<double>(weights_.size()) + static_cast<double>(size_));
    return {.value      = value,
            .magnitude  = std::sqrt(squares) + 0x1p-16 * roundings * absolute,
            .accumulate = DType::bf16};
  }

 private:
  int64_t size_;
  std::vector<const bf16*> values_;
  std::vector<double> weights_, magnitudes_;
};

// out [T, heads, dimensions], an element at a time; reference(t, h) is a Query.
template <class Reference>
void check_rows(Checker& checker, View<bf16, 3> out, const Reference& reference) {
  // `row` is of the last element, which the thread's copy keeps.
  checker.values_in_parallel("out", out,
                             [&reference, row = std::optional<DecodeRow>(), row_t = int64_t{-1},
                              row_h = int64_t{-1}](int64_t t, int64_t h, int64_t d) mutable {
                               if (std::tie(row_t, row_h) != std::tie(t, h)) {
                                 row.emplace(reference(t, h));
                                 row_t = t, row_h = h;
                               }
                               return row->at(d);
                             });
}

}  // namespace fathom::lab::decode_row
