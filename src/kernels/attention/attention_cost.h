// The cost of attention over a paged cache, for decode_attention.h and prefill_attention.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention/kv_layer.h"
#include "kernels/cost.h"

namespace fathom::kernels {

// What a batch of rows attends to in one layer.
struct AttentionReach {
  int64_t rows      = 0;
  int64_t positions = 0;  // in reach of some row of their sequence
  int64_t pairs     = 0;  // of a row and a position in its reach

  // Adds rows at positions first .. first + count of a sequence, with a window (0: none).
  void add(int64_t first, int64_t count, int64_t window) {
    if (count == 0) return;
    rows += count;
    const auto begin = [&](int64_t position) {
      return window > 0 ? std::max<int64_t>(0, position - window + 1) : 0;
    };
    positions += first + count - begin(first);
    for (int64_t p = first; p < first + count; ++p) pairs += p + 1 - begin(p);
  }
};

// 4 Dh flops for each query head and pair; q and out are bf16.
inline Cost attention_cost(const AttentionReach& reach, int64_t query_heads, int64_t kv_heads,
                           int64_t position_bytes) {
  const auto q = static_cast<double>(reach.rows * query_heads * kHeadDim * 2);
  return {.read    = q + static_cast<double>(reach.positions * kv_heads * position_bytes),
          .written = q,
          .flops   = static_cast<double>(4 * reach.pairs * query_heads * kHeadDim)};
}

}  // namespace fathom::kernels
