// How a row's token is chosen on a GPU.
#pragma once

#include <cstdint>

#include "core/view.h"

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

// Whether every token may be drawn. (The caller makes a temperature of 2^-60 or less 0: logits divided by it
// would all be clamped to the largest float.)
FATHOM_HD inline bool draws_from_all(const SamplingRow& rule, int64_t vocabulary) {
  return rule.temperature > 0 && (rule.top_k <= 0 || rule.top_k >= vocabulary) && rule.top_p >= 1 &&
         rule.min_p <= 0;
}

// Whether a row's token is an argmax: no filter must know all logits first.
FATHOM_HD inline bool can_be_screened(const SamplingRow& rule, int64_t vocabulary) {
  return !(rule.temperature > 0) || draws_from_all(rule, vocabulary);
}

}  // namespace fathom::kernels
