// Samples the next token of each row on the GPU, without a sort: greedy, or temperature, top-k, top-p and
// min-p, each applied to what the one before left, and a random draw. The same as engine/sampler.h does, once
// bias, penalties and constraints are in the logits.
//
// bytes   4 V a row; rows that are not greedy are read twice
// limit   latency at few rows; memory bandwidth at many
#pragma once

#include <cstdint>

#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/cost.h"

namespace fathom::kernels {

// As SamplingParameters (engine/sampler.h), whose check() it must pass. `position` is the token's position in
// its sequence: the random number is the same function of it and the seed as the CPU sampler's.
struct SamplingRow {
  float temperature = 1;  // 0: greedy, the lowest id where logits are equal
  float top_p       = 1;
  float min_p       = 0;
  int32_t top_k     = 0;  // 0: all
  uint64_t seed     = 0;
  int64_t position  = 0;
  int32_t place     = -1;  // index into `sampled` of the result; -1: the row is padding
};

// logits [R, V], V a multiple of 4 and at most kMaxVocabulary; rules [R], in device memory, which no kernel
// of the chain of dependent launches writes (cuda/launch.cuh); sampled has any length. The id is -1 where
// there is no distribution: a logit is NaN or +infinity, or all are -infinity. A row's id depends on nothing
// but its logits and its rule. Greedy ids equal the CPU sampler's. Drawn ids do except for rounding (weights
// are fp32 here), and tokens less than 2^-44 times as likely as the likeliest may be left out.
void sample_tokens(View<const float, 2> logits, View<const SamplingRow, 1> rules, View<int32_t, 1> sampled,
                   StreamRef stream);

inline constexpr int64_t kMaxVocabulary = int64_t{1} << 18;

// `random_rows` of the rows have a temperature above 0. Top-k and top-p read such a row once or twice more,
// from L2, which is not counted.
inline Cost sample_cost(int64_t rows, int64_t random_rows, int64_t vocabulary) {
  return {.read = 4.0 * static_cast<double>(rows + random_rows) * static_cast<double>(vocabulary) +
                  static_cast<double>(rows) * sizeof(SamplingRow),
          .written = 4.0 * static_cast<double>(rows)};
}

}  // namespace fathom::kernels
