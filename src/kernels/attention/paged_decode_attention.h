// Decode attention over a paged cache as a family: heads of 64 or 128 numbers, up to 8 query heads to a
// key-value head, and a functor for the score that is compiled into the kernel (FlexDecoding: the decode half
// of PyTorch's FlexAttention). The causal mask is implied: a sequence's query is its last position.
//
//   out(t, h) = sum_j w(j) v(j),  w = softmax over contexts(t) - window <= j < contexts(t) of
//   score(scale q(t, h) . k(j)), with an optional sink: one more score of each query head, without a value
//
// bytes   4 Hkv D for each position in reach; q and out 4 Hq D a sequence
// flops   4 Hq D for each position in reach
// limit   DRAM bandwidth; a window or a short context: latency
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/attention/attention_scores.h"
#include "kernels/cost.h"

namespace fathom::kernels {

struct PagedDecode {
  View<const bf16, 3> q;                   // [T, Hq, D]
  View<const bf16, 4> k, v;                // [pages, Hkv, 64, D]
  View<const int32_t, 1> contexts;         // [T]; 0 gives zeros
  View<const int32_t, 2> pages;            // [T, P]: position j lies in row j % 64 of page pages(t, j / 64)
  float scale;                             // > 0
  View<const float, 1> sinks = {};         // [Hq], or empty: none
  int window                 = INT32_MAX;  // > 0: positions in reach, the query's own among them
  // How the positions are dealt out to CTAs. 0: ranges of equal payload over all sequences and heads, one a
  // multiprocessor. n > 0: n pieces of equal length of each sequence and key-value head, for which
  // paged_decode_splits() has a number.
  int splits = 0;
  View<float, 1> workspace;  // paged_decode_workspace() floats: partial results
  View<bf16, 3> out;         // [T, Hq, D]
};

// A GPU with more multiprocessors leaves some idle when splits = 0.
inline constexpr int64_t kPagedDecodeMaxCtas = 160;

inline constexpr int kPagedDecodeMaxSplits = 128;

// Splits of equal length for `items` sequences and key-value heads of at most `blocks` blocks of 64
// positions, when `ctas` CTAs run at once (FlashAttention's num_splits_heuristic). A CTA each is enough if
// they fill 80 % of the places, and a piece is not worth a merge below 4 blocks. Otherwise CTAs run in waves
// of equal length, of which the last one is not full: the fewest splits whose waves are on average at least
// 85 % as full as those of the best number.
constexpr int paged_decode_splits(int64_t items, int64_t blocks, int64_t ctas) {
  if (items == 0 || 10 * items >= 8 * ctas || blocks <= 4) return 1;
  const auto most     = blocks < kPagedDecodeMaxSplits ? blocks : int64_t{kPagedDecodeMaxSplits};
  const auto fullness = [&](int64_t splits) {
    const int64_t all = items * splits, waves = (all + ctas - 1) / ctas;
    return static_cast<double>(all) / static_cast<double>(waves * ctas);
  };
  double best = 0;
  for (int64_t splits = 1; splits <= most; ++splits) best = fullness(splits) > best ? fullness(splits) : best;
  int64_t splits = 1;
  while (fullness(splits) < 0.85 * best) ++splits;
  return static_cast<int>(splits);
}

constexpr int64_t paged_decode_workspace(int64_t sequences, int64_t kv_heads, int64_t head_size, int splits) {
  const int64_t slots = splits > 0 ? sequences * kv_heads * splits : 2 * kPagedDecodeMaxCtas;
  return slots * 8 * (head_size + 2);
}

// All views are contiguous and on the device; D = 64 or 128, Hq / Hkv <= 8. Positions out of reach may hold
// anything, NaN too. A sequence without any visible key gets zeros. Score: those of attention_scores.h. With
// splits = 0 a row's bits depend on the contexts before it, because these decide where it is cut.
//
// The kernels begin before the previous kernel in a chain of dependent launches ends (cuda/launch.cuh):
// contexts and pages must have been written before that kernel.
template <class Score>
void paged_decode_attention(const PagedDecode& decode, const Score& score, StreamRef stream);

// With `positions` in reach of all sequences together.
inline Cost paged_decode_cost(int64_t rows, int64_t heads, int64_t kv_heads, int64_t head_size,
                              int64_t positions) {
  const auto each = static_cast<double>(rows * heads * head_size), all = static_cast<double>(positions);
  return {.read    = all * 4 * static_cast<double>(kv_heads * head_size) + 2 * each,
          .written = 2 * each,
          .flops   = all * 4 * static_cast<double>(heads * head_size)};
}

}  // namespace fathom::kernels
