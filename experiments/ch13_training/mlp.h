// A layer y += W2 f(W1 x) with f(z) = relu(z)^2, forward and backward, in plain loops. f is smooth at 0 (So
// et al., 2021, arXiv 2109.08668), so that rounding cannot switch a unit's gradient on.
//
// Layer: any type with units(), hidden (units that a row uses), w1(unit), w2(unit), dw1(unit), dw2(unit).
// Each of the last four is a row of kModel floats.
#pragma once

#include <algorithm>
#include <cstdint>

namespace fathom::lab::mlp {

inline constexpr int64_t kModel = 128;

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

// `rows` rows for each expert; a dense layer is one expert. z = relu(W1 x) is kept for the backward pass.
template <class Layer>
void forward(const Layer& layer, int64_t rows, const float* x, float* z, float* y) {
  for (int64_t unit = 0; unit < layer.units(); ++unit)
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = unit / layer.hidden * rows + i;
      float& kept       = z[unit * rows + i];
      kept              = std::max(dot(x + row * kModel, layer.w1(unit)), 0.0f);
      add_scaled(kept * kept, layer.w2(unit), y + row * kModel);
    }
}

// Adds the gradients of the weights, and that of x where dx is not null.
template <class Layer>
void backward(Layer& layer, int64_t rows, const float* x, const float* z, const float* dy, float* dx) {
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

}  // namespace fathom::lab::mlp
