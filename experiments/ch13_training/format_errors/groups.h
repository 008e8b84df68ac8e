// What the variants share: the scales of a matrix's groups.
#pragma once

#include <algorithm>
#include <bit>
#include <type_traits>

#include "fake_quantize.h"

namespace fathom::lab::format_errors {

template <class Format>
constexpr float largest_code() {
  if constexpr (kernels::kPacked<Format>)
    return fp4_e2m1::max();
  else if constexpr (std::is_same_v<kernels::CodeOf<Format>, int8_t>)
    return 127;
  else
    return kernels::CodeOf<Format>::max();
}

// Magnitudes of bf16 are ordered as integers are.
inline float amax(const bf16* x, int64_t n) {
  uint16_t largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, static_cast<uint16_t>(x[i].bits & 0x7fff));
  return static_cast<float>(bf16::from_bits(largest));
}

inline float fp32_scale(float amax, float largest) {
  return std::max(amax / largest, kernels::kSmallestScale);
}

template <class Format>
float scale_of(float amax, float tensor_scale) {
  if constexpr (std::is_same_v<Format, kernels::Nvfp4>) {
    return static_cast<float>(fp8_e4m3(amax / fp4_e2m1::max() / tensor_scale));
  } else if constexpr (std::is_same_v<Format, kernels::Mxfp8>) {
    // One power of two more beyond a mantissa of 1.75.
    const int code = static_cast<int>((std::bit_cast<uint32_t>(amax) + 0x1fffff) >> 23) - 8;
    return static_cast<float>(e8m0::from_bits(static_cast<uint32_t>(std::max(code, 0))));
  } else if constexpr (std::is_same_v<Format, kernels::Mxfp4>) {
    return static_cast<float>(e8m0::from_bits(static_cast<uint32_t>(std::max(e8m0(amax).bits - 2, 0))));
  } else {
    return fp32_scale(amax, largest_code<Format>());
  }
}

// Calls round(x, n, scale, tensor_scale, out) for each group of n numbers; a code stands for
// code * scale * tensor_scale, where only NVFP4 has two scales.
template <class Format, class Round>
void round_groups(View<const bf16, 2> x, View<bf16, 2> out, Round round) {
  constexpr bool kTwoLevels = std::is_same_v<Format, kernels::Nvfp4>;
  const int64_t columns     = x.extent(1);
  int64_t group             = columns;
  if constexpr (kernels::kInBlocks<Format>) group = Format::kBlock;
  float of_tensor = 1;
  if constexpr (kernels::kScaleIsGiven<Format>)
    of_tensor =
        fp32_scale(amax(x.data(), x.size()), largest_code<Format>() * (kTwoLevels ? fp8_e4m3::max() : 1));
  for (int64_t r = 0; r < x.extent(0); ++r)
    for (int64_t c = 0; c < columns; c += group) {
      const int64_t n = std::min(group, columns - c);
      float scale     = 1;
      if constexpr (kTwoLevels || !kernels::kScaleIsGiven<Format>)
        scale = scale_of<Format>(amax(&x(r, c), n), of_tensor);
      round(&x(r, c), n, scale, of_tensor, &out(r, c));
    }
}

}  // namespace fathom::lab::format_errors
