// The rotary frequencies of a checkpoint, by YaRN (Peng et al., "YaRN: Efficient Context Window Extension of
// Large Language Models", 2023) as OpenAI's gpt-oss implementation uses it.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"

namespace fathom::model {

struct RopeFrequencies {
  std::vector<float> inv_freq;  // [head_dim / 2], radians per position
  float concentration = 1;      // scales the cosines and sines of queries and keys: 0.1 ln(factor) + 1
};

RopeFrequencies rope_frequencies(const Rope& rope, int64_t head_dim);

}  // namespace fathom::model
