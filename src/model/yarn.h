// The rotary frequencies of a checkpoint: YaRN (Peng et al., "YaRN: Efficient Context Window Extension of
// Large Language Models", 2023) as gpt-oss sets it; specs/gpt-oss.md section 4.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"

namespace fathom::model {

struct RopeFrequencies {
  std::vector<float> of_pair;  // [head_dim / 2], radians a position
  float concentration = 1;     // scales cosines and sines, and so queries and keys both
};

RopeFrequencies rope_frequencies(const Rope& rope, int64_t head_dim);

}  // namespace fathom::model
