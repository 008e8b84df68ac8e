// Samples the next token of each row on the GPU, without a sort: greedy, or temperature, top-k, top-p and
// min-p, each applied to what the one before left, and a random draw: by Gumbel numbers (core/gumbel.h) where
// no token is ruled out, and else by one number's place among the sums of the weights. The same as
// engine/sampler.h does, once bias, penalties and constraints are in the logits.
//
// bytes   4 V a row; rows with top-k, top-p or min-p are read twice
// limit   latency at few rows; memory bandwidth at many
#pragma once

#include <cstdint>

#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/cost.h"
#include "kernels/sampling/sampling_row.h"

namespace fathom::kernels {

// logits [R, V], V a multiple of 4 and at most kMaxVocabulary; rules [R], in device memory, which no kernel
// of the chain of dependent launches writes (cuda/launch.cuh); sampled has any length. The id is -1 where
// there is no distribution: a logit is NaN or +infinity, or all are -infinity. A row's id depends on nothing
// but its logits and its rule. Greedy ids equal the CPU sampler's. Drawn ids do except for rounding (sums and
// weights are fp32 here); with top-k, top-p or min-p, tokens less than 2^-44 times as likely as the likeliest
// may be left out.
void sample_tokens(View<const float, 2> logits, View<const SamplingRow, 1> rules, View<int32_t, 1> sampled,
                   StreamRef stream);

inline constexpr int64_t kMaxVocabulary = int64_t{1} << 18;

// `filtered_rows` of the rows have top-k, top-p or min-p. Top-k and top-p read such a row once or twice more,
// from L2, which is not counted.
inline Cost sample_cost(int64_t rows, int64_t filtered_rows, int64_t vocabulary) {
  return {.read = 4.0 * static_cast<double>(rows + filtered_rows) * static_cast<double>(vocabulary) +
                  static_cast<double>(rows) * sizeof(SamplingRow),
          .written = 4.0 * static_cast<double>(rows)};
}

}  // namespace fathom::kernels
