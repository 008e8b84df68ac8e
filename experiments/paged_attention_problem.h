// Definitions of paged_attention.h, and the reference: attention of one row and query head in double, with
// the tolerance of a kernel's result.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <vector>

#include "experiments/paged_attention.h"
#include "lab/problem.h"

namespace fathom::lab::paged_attention {

struct PagedHead {
  kernels::Bf16KvPages kv;
  const int32_t* pages;  // of the sequence
  int64_t head;          // key-value head
};

class RowReference {
 public:
  // q has 64 numbers; positions first .. last are in reach, none where last < first.
  RowReference(const bf16* q, const PagedHead& from, double scale, double sink, int64_t first, int64_t last)
      : from_(from), first_(first) {
    double max_score = sink, total = 0;
    for (int64_t j = first; j <= last; ++j) {
      const bf16* keys = from.kv.keys(from.pages[j / kernels::kTile], from.head);
      double score = 0, size = 0;
      for (int64_t d = 0; d < kernels::kHeadDim; ++d) {
        const double product = scale * static_cast<float>(q[d]) *
                               static_cast<float>(keys[kernels::Bf16KvPages::at(j % kernels::kTile, d)]);
        score += product;
        size += std::abs(product);
      }
      weights_.push_back(score);
      sizes_.push_back(size);
      max_score = std::max(max_score, score);
    }
    for (double& weight : weights_) total += weight = std::exp(weight - max_score);
    total += std::exp(sink - max_score);
    for (double& weight : weights_) weight /= total;
  }

  // Dimension d. For the tensor cores each weight is rounded to bf16: these errors are independent, so their
  // squares add up. Sums are in fp32, and an absolute error of a score is a relative error of its weight:
  // hence 1 + size. Both are one magnitude in units of bf16's round-off, which is 2^16 of fp32's.
  Sum at(int64_t d) const {
    double value = 0, squares = 0, absolute = 0;
    for (size_t i = 0; i < weights_.size(); ++i) {
      const int64_t j    = first_ + static_cast<int64_t>(i);
      const bf16* values = from_.kv.values(from_.pages[j / kernels::kTile], from_.head);
      const double term =
          weights_[i] * static_cast<float>(values[kernels::Bf16KvPages::at(j % kernels::kTile, d)]);
      value += term;
      squares += term * term;
      absolute += std::abs(term) * (1 + sizes_[i]);
    }
    const double roundings = std::sqrt(static_cast<double>(weights_.size()) + kernels::kHeadDim);
    return {.value      = value,
            .magnitude  = std::sqrt(squares) + 0x1p-16 * roundings * absolute,
            .accumulate = DType::bf16};
  }

 private:
  PagedHead from_;
  int64_t first_;
  std::vector<double> weights_, sizes_;  // sizes: sums of |q k|
};

// out [T, kHeads, kHeadDim], an element at a time; reference(t, h) is a RowReference.
template <class Reference>
void check_rows(Checker& checker, View<bf16, 3> out, const Reference& reference) {
  // `row` is of the last element, which the thread's copy keeps.
  checker.values_in_parallel("out", out,
                             [&reference, row = std::optional<RowReference>(), row_t = int64_t{-1},
                              row_h = int64_t{-1}](int64_t t, int64_t h, int64_t d) mutable {
                               if (std::tie(row_t, row_h) != std::tie(t, h)) {
                                 row.emplace(reference(t, h));
                                 row_t = t, row_h = h;
                               }
                               return row->at(d);
                             });
}

inline DecodeRows::DecodeRows(const Point& at, Arena& arena)
    : context(at["context"]),
      window(at["window"]),
      q(arena.input<bf16>({at["sequences"], kHeads, kHeadDim}, Normal{})),
      pages(arena.input<int32_t>({at["sequences"], pages_for(context)}, Permutation{})),
      sinks(arena.input<float>({kHeads}, Normal{})),
      positions(arena.input<int32_t>(
          {at["sequences"]}, generate<int32_t>([last = context - 1](int32_t* to, int64_t n, uint64_t) {
            std::fill_n(to, n, static_cast<int32_t>(last));
          }))),
      sequence(
          arena.input<int32_t>({at["sequences"]}, generate<int32_t>([](int32_t* to, int64_t n, uint64_t) {
                                 for (int32_t s = 0; s < n; ++s) to[s] = s;
                               }))),
      out(arena.output<bf16>({at["sequences"], kHeads, kHeadDim})) {}

inline Cost DecodeRows::cost_of_reading(int64_t bytes) const {
  const int64_t in_reach = q.extent(0) * reach();
  return {.read    = in_reach * bytes + q.bytes(),
          .written = out.bytes(),
          .flops   = 4.0 * static_cast<double>(in_reach) * kHeads * kHeadDim};
}

inline void DecodeRows::check_over(const kernels::Bf16KvPages& kv, Checker& checker) const {
  check_rows(checker, out, [&](int64_t s, int64_t h) {
    return RowReference(&q(s, h, 0), {kv, pages.data() + s * pages.extent(1), h / kGroup}, kScale, sinks(h),
                        context - reach(), context - 1);
  });
}

}  // namespace fathom::lab::paged_attention
