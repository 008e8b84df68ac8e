// One row of softmax whose exponentials are computed once and corrected in place.
#pragma once

#include <cmath>

#include "running_sum.h"

namespace fathom::lab::online_softmax_cpu {

inline void kept_row(const Softmax& p, int64_t r) {
  const int64_t n      = p.in.extent(1);
  float* out           = p.out.data() + r * n;
  float* block_max     = p.block_max.data() + r * p.block_max.stride(0);
  const Normalizer row = normalizer(
      p.in.data() + r * n, n, [&](int64_t i, float max) { block_max[i / kBlock] = max; },
      [&](int64_t i, Vector e, int64_t count) { store(e, out + i, count); });
  for (int64_t i = 0; i < n; i += kBlock) {
    const float scale = std::exp(block_max[i / kBlock] - row.max) / row.sum;
    for (int64_t c = i; c < std::min(n, i + kBlock); ++c) out[c] *= scale;
  }
}

}  // namespace fathom::lab::online_softmax_cpu
