// From logits to the next token, on the GPU, without a sort: what engine/sampler.h does of its own accord
// once bias, penalties and restrictions are in the logits. Greedy, or temperature, top-k, top-p and min-p,
// each on what the one before left, and a draw.
//
// bytes   4 V a row; the rows that are drawn from read it twice
// limit   latency at few rows; memory bandwidth at many
#pragma once

#include <cstdint>

#include "core/stream.h"
#include "core/view.h"

namespace fathom::kernels {

// As SamplingParameters (engine/sampler.h), whose check() it must pass. `position` is the token's in its
// sequence: the random number is a function of it and the seed, the sampler's.
struct TokenRule {
  float temperature = 1;  // 0: greedy, the lowest id where logits are equal
  float top_p       = 1;
  float min_p       = 0;
  int32_t top_k     = 0;  // 0: all
  uint64_t seed     = 0;
  int64_t position  = 0;
  int32_t place     = -1;  // of `sampled`, where the id goes; -1: nowhere, the row is padding
};

// logits [R, V], V a multiple of 4 and at most kMostTokens; rules [R], in device memory, which no kernel of
// the chain writes; sampled: of any length. The id is -1 where there is no distribution: where a logit is NaN
// or +infinity, or all are -infinity. A row's id depends on nothing but its logits and its rule. Greedy ids
// are the sampler's exactly; drawn ones are but for rounding (weights are fp32 here), and tokens less than
// 2^-44 as likely as the likeliest may be left out.
void choose_tokens(View<const float, 2> logits, View<const TokenRule, 1> rules, View<int32_t, 1> sampled,
                   StreamRef stream);

inline constexpr int64_t kMostTokens = int64_t{1} << 18;

}  // namespace fathom::kernels
