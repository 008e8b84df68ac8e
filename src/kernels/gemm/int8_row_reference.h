// A row of activations in int8, quantized in the plainest way: for references, and for bounds of errors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/int8_group.h"

namespace fathom::kernels {

// A scale for each block of 32 numbers, of which the last may be shorter: amax / 127 in fp32. Values are
// round(number / scale), to nearest even, at most 127 in magnitude. A block with an infinity or a NaN has a
// NaN scale, one with scale 0 is zero.
struct Int8Row {
  std::vector<int> values;
  std::vector<float> scales;

  explicit Int8Row(std::span<const float> x) {
    for (size_t first = 0; first < x.size(); first += kInt8Group) {
      const size_t end = std::min(first + kInt8Group, x.size());
      float largest    = 0;
      bool finite      = true;
      for (size_t i = first; i < end; ++i) {
        finite &= std::isfinite(x[i]);
        largest = std::max(largest, std::fabs(x[i]));
      }
      const float scale = finite ? largest / 127 : std::numeric_limits<float>::quiet_NaN();
      scales.push_back(scale);
      for (size_t i = first; i < end; ++i)
        values.push_back(
            scale > 0 ? static_cast<int>(std::clamp(std::nearbyint(x[i] / scale), -127.0f, 127.0f)) : 0);
    }
  }
};

}  // namespace fathom::kernels
