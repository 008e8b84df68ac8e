// A rank's part of a layer of experts; a dense layer is one expert. Plain loops, the same on every mesh.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "training.h"

namespace fathom::lab::device_mesh_cpu {

struct Layer {
  int64_t experts, hidden;  // hidden units of each expert
  // w1 of all units, then w2 of all units: a row of kModel for each.
  std::vector<float> weights, gradients;

  int64_t units() const { return experts * hidden; }
  const float* w1(int64_t unit) const { return &weights[static_cast<size_t>(unit * kModel)]; }
  const float* w2(int64_t unit) const { return w1(units() + unit); }
  float* dw1(int64_t unit) { return &gradients[static_cast<size_t>(unit * kModel)]; }
  float* dw2(int64_t unit) { return dw1(units() + unit); }
};

// As many partial sums as four vectors hold, since the compiler may not reorder one sum.
inline float dot(const float* a, const float* b) {
  constexpr int64_t kLanes = 32;
  static_assert(kModel % kLanes == 0);
  float sums[kLanes] = {};
  for (int64_t i = 0; i < kModel; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  float total = 0;
  for (const float sum : sums) total += sum;
  return total;
}

inline void add_scaled(float scale, const float* from, float* to) {
  for (int64_t i = 0; i < kModel; ++i) to[i] += scale * from[i];
}

// `rows` rows for each expert. y += W2 f(z), where z = relu(W1 x) is kept for the backward pass.
inline void forward(const Layer& layer, int64_t rows, const float* x, float* z, float* y) {
  for (int64_t unit = 0; unit < layer.units(); ++unit)
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = unit / layer.hidden * rows + i;
      float& kept       = z[unit * rows + i];
      kept              = std::max(dot(x + row * kModel, layer.w1(unit)), 0.0f);
      add_scaled(kept * kept, layer.w2(unit), y + row * kModel);
    }
}

// Sets the gradients of the weights, and adds that of x where dx is not null.
inline void backward(Layer& layer, int64_t rows, const float* x, const float* z, const float* dy, float* dx) {
  std::fill(layer.gradients.begin(), layer.gradients.end(), 0.0f);
  for (int64_t unit = 0; unit < layer.units(); ++unit)
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = unit / layer.hidden * rows + i;
      const float kept  = z[unit * rows + i];
      const float dz    = 2 * kept * dot(dy + row * kModel, layer.w2(unit));
      add_scaled(kept * kept, dy + row * kModel, layer.dw2(unit));
      add_scaled(dz, x + row * kModel, layer.dw1(unit));
      if (dx) add_scaled(dz, layer.w1(unit), dx + row * kModel);
    }
}

}  // namespace fathom::lab::device_mesh_cpu
