// Layers of mlp.h as a checkpoint has them: [layer][hidden unit][into it, out of it][kModel], all of a unit
// together, so that a shard of hidden units is one piece. The same on all ranks, whatever the seed.
#pragma once

#include <cmath>

#include "core/rng.h"
#include "experiments/ch13_training/mlp.h"
#include "lab/problem.h"

namespace fathom::lab::mlp {

inline constexpr int64_t kUnit = 2 * kModel;  // floats of a hidden unit

// Some units of a layer, for mlp.h.
struct Layer {
  int64_t hidden;
  const float* weights;
  float* gradients;

  int64_t units() const { return hidden; }
  const float* w1(int64_t unit) const { return weights + unit * kUnit; }
  const float* w2(int64_t unit) const { return w1(unit) + kModel; }
  float* dw1(int64_t unit) const { return gradients + unit * kUnit; }
  float* dw2(int64_t unit) const { return dw1(unit) + kModel; }
};

// So small that 8 layers of squares neither vanish nor grow: variance 1 / kModel of w1, 0.1 / hidden of w2.
inline Generate weights_of_layers(int64_t hidden) {
  return generate<float>([hidden](float* to, int64_t n, uint64_t) {
    const double most[2] = {std::sqrt(3.0 / kModel), std::sqrt(0.3 / static_cast<double>(hidden))};
    for (int64_t row = 0; row < n / kModel; ++row)
      fill_uniform(to + row * kModel, kModel, static_cast<uint64_t>(row), -most[row % 2], most[row % 2]);
  });
}

inline Generate the_same_everywhere(uint64_t which, double lowest, double highest) {
  return generate<float>(
      [=](float* to, int64_t n, uint64_t) { fill_uniform(to, n, which, lowest, highest); });
}

}  // namespace fathom::lab::mlp
