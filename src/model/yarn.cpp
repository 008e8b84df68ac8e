#include "model/yarn.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace fathom::model {

RopeFrequencies rope_frequencies(const Rope& rope, int64_t head_dim) {
  const auto dim = static_cast<double>(head_dim);
  // The (fractional) pair that makes `turns` rotations within the original context.
  const auto pair_of = [&](double turns) {
    return dim / 2 * std::log(static_cast<double>(rope.original_context) / (turns * 2 * std::numbers::pi)) /
           std::log(rope.theta);
  };
  const bool extended = rope.factor > 1;
  double low = 0, high = 0;
  if (extended) {
    low  = pair_of(rope.beta_fast);
    high = pair_of(rope.beta_slow);
    if (rope.truncate) low = std::floor(low), high = std::ceil(high);
    low  = std::max(low, 0.0);
    high = std::min(high, dim - 1);
    if (low == high) high += 0.001;
  }
  RopeFrequencies out;
  for (int64_t k = 0; k < head_dim / 2; ++k) {
    const double plain = std::pow(rope.theta, -2 * static_cast<double>(k) / dim);
    // YaRN's ramp. 0: high frequency, kept as trained; 1: low frequency, interpolated by the full factor.
    const double ramp = extended ? std::clamp((static_cast<double>(k) - low) / (high - low), 0.0, 1.0) : 0.0;
    out.inv_freq.push_back(static_cast<float>(plain * (1 - ramp + ramp / rope.factor)));
  }
  if (extended) out.concentration = static_cast<float>(0.1 * std::log(rope.factor) + 1);
  return out;
}

}  // namespace fathom::model
