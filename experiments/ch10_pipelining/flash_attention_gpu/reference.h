// Attention of one row and query head in double, over the cache of kernels/kv_tiles.h, and how far from it
// the result of a kernel may be. For the experiments of several chapters.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/dtype.h"
#include "kernels/kv_tiles.h"
#include "lab/check.h"

namespace fathom::lab::flash_attention_gpu {

struct PagedHead {
  kernels::KvTiles kv;
  const int32_t* pages;  // of the sequence
  int64_t head;          // of keys and values
};

class RowReference {
 public:
  // q has 64 numbers; positions first .. last are in reach, none where last < first.
  RowReference(const bf16* q, const PagedHead& from, double scale, double sink, int64_t first, int64_t last)
      : from_(from), first_(first) {
    double most = sink, total = 0;
    for (int64_t j = first; j <= last; ++j) {
      const bf16* keys = from.kv.keys(from.pages[j / kernels::kTile], from.head);
      double score = 0, size = 0;
      for (int64_t d = 0; d < kernels::kHeadDim; ++d) {
        const double product = scale * static_cast<float>(q[d]) *
                               static_cast<float>(keys[kernels::KvTiles::at(j % kernels::kTile, d)]);
        score += product;
        size += std::abs(product);
      }
      weights_.push_back(score);
      sizes_.push_back(size);
      most = std::max(most, score);
    }
    for (double& weight : weights_) total += weight = std::exp(weight - most);
    total += std::exp(sink - most);
    for (double& weight : weights_) weight /= total;
  }

  // Of dimension d. Where weights meet values on the tensor cores they are rounded to bf16, each for itself:
  // errors of that size add up like their squares. Beside it sums are in fp32, and an absolute error of a
  // score is a relative one of its weight: hence 1 + size. Both as one magnitude in units of bf16's
  // round-off, 2^16 of fp32's.
  Sum at(int64_t d) const {
    double value = 0, squares = 0, absolute = 0;
    for (size_t i = 0; i < weights_.size(); ++i) {
      const int64_t j    = first_ + static_cast<int64_t>(i);
      const bf16* values = from_.kv.values(from_.pages[j / kernels::kTile], from_.head);
      const double term =
          weights_[i] * static_cast<float>(values[kernels::KvTiles::at(j % kernels::kTile, d)]);
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

}  // namespace fathom::lab::flash_attention_gpu
