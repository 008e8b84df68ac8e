// The tokens of up to 8 rows, without reading all of W: argmax_v y(t, v), or with a temperature
// argmax_v y(t, v) / temperature + G(v) (core/gumbel.h), where y = W x. A copy of W in int8 gives each y
// within a bound, |y~ - y| <= b. Let L be the largest score of a row's y~ - b. A v whose score of y~ + b is
// below L does not win. The others, some tens of 200,000, are computed from W, with the bits of linear_gemv.
// So the tokens are those of linear_gemv and sample_tokens, not nearly but always, as long as scores are
// below 2^100 and, where they are not 0, above 2^-100 in size.
//
//   y~(t, v) = s(v) sum_k q(v, k) x(t, k)           q = round(w / s), s(v) = max_k |w(v, k)| / 127
//   b(t, v)  = e(v) |x(t)|                          e(v) = |w(v) - s(v) q(v)| + 2^-13 |w(v)|
//
// Both norms are Euclidean: |(w - s q) x| <= |w - s q| |x|. The second part of e is for the sums' rounding.
//
// bytes   N K of q, 8 N of s and e, 4 T N of upper bounds written and read; 32 K for each 16 rows that have a
//         v that may win. W itself has 2 N K
// flops   2 T N K
// limit   memory bandwidth
// source  Cauchy-Schwarz bounds, as in exact maximum inner product search (Ram and Gray, KDD 2012)
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/cost.h"
#include "kernels/gemm/packed_weights.h"
#include "kernels/sampling/sampling_row.h"

namespace fathom::kernels {

// The int8 copy. In tiles of 64 x 64 in the order of PackedMatrix's:
//   q + 128   [4 groups of 16 rows][2 halves of 32 columns][32 lanes][16 bytes]; two words for each step of
//   16
//             columns, and in them the bytes of the registers a[0], a[1] and a[2], a[3] of mma_m16n8k16
struct ScreeningWeights {
  const uint8_t* tiles = nullptr;
  const float* scales  = nullptr;  // [rows]: s
  const float* errors  = nullptr;  // [rows]: e; infinite where a row of W is not finite
  int64_t rows = 0, depth = 0;     // as those of W

  static constexpr int64_t kTileBytes = 4096;
  int64_t tile_bytes() const { return rows * depth; }
  int64_t bytes() const { return tile_bytes() + 8 * rows; }
};

// Of w, which has no bias: its numbers in int8 (ScreeningWeights::tile_bytes()), and [rows] scales and
// errors.
void pack_screening_weights(const PackedMatrix& w, uint8_t* tiles, float* scales, float* errors,
                            StreamRef stream);

// Zero before the first call; calls leave it so. No two use it at the same time.
struct ScreenedArgmaxState {
  uint64_t best[kMaxGemvRows];
  uint32_t least[kMaxGemvRows];
  uint32_t ctas_done, padding;
};

// x [T, K] as linear_gemv has it, T from 1 to 8; w of at least kFullKRows rows, without bias, and `screening`
// made of it; rules [T], each of which can_be_screened(), in memory that no kernel of the chain of dependent
// launches writes. `upper` [T, V] is working memory, V the rows of w without padding. Ids are those of
// sample_tokens.
void screened_argmax(View<const bf16, 2> x, const PackedMatrix& w, const ScreeningWeights& screening,
                     View<const SamplingRow, 1> rules, View<float, 2> upper, ScreenedArgmaxState* state,
                     View<int32_t, 1> sampled, StreamRef stream);

// The first kernel of screened_argmax, which screens, and the second. How many groups of 16 rows the second
// computes depends on the numbers; none are counted.
inline Cost screen_cost(int64_t tokens, int64_t rows, int64_t depth) {
  const auto T = static_cast<double>(tokens), N = static_cast<double>(rows), K = static_cast<double>(depth);
  return {.read = N * K + 8 * N + 2 * T * K, .written = 4 * T * N, .flops = 2 * T * N * K};
}
inline Cost rescore_cost(int64_t tokens, int64_t rows, int64_t depth) {
  const auto T = static_cast<double>(tokens), N = static_cast<double>(rows), K = static_cast<double>(depth);
  return {.read = 4 * T * N + 2 * T * K, .written = 4 * T};
}

}  // namespace fathom::kernels
