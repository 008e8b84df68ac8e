// Block formats of 4-bit numbers: E2M1 values that share a scale.
//
//   MXFP4  32 values, one E8M0 scale a block                 w = value * scale            (OCP Microscaling
//   v1.0) NVFP4  16 values, one E4M3 scale a block, one fp32 scale  w = value * scale * tensor_scale
//
// Both pack two values a byte, the first in the low nibble, as the checkpoints do. x, values and scales
// belong to whole blocks: x.size() a multiple of the block, values.size() == x.size() / 2, scales.size() ==
// x.size() / block. A block with an infinity or a NaN gets a NaN scale, so all of it decodes to NaN.
#pragma once

#include <cstdint>
#include <span>

namespace fathom {

inline constexpr int64_t kMxfp4Block = 32;
inline constexpr int64_t kNvfp4Block = 16;

// The scale is 2^(floor(log2(amax)) - 2), the rule of the OCP standard: an amax in (6, 8) times the scale
// saturates.
void encode_mxfp4(std::span<const float> x, std::span<uint8_t> values, std::span<uint8_t> scales);
void decode_mxfp4(std::span<const uint8_t> values, std::span<const uint8_t> scales, std::span<float> x);

// The tensor scale that maps amax to the largest number of value * scale, 6 * 448. Every x must be finite.
float nvfp4_tensor_scale(std::span<const float> x);

// tensor_scale > 0; a tensor may be encoded in pieces with the scale of the whole.
void encode_nvfp4(std::span<const float> x, float tensor_scale, std::span<uint8_t> values,
                  std::span<uint8_t> scales);
void decode_nvfp4(std::span<const uint8_t> values, std::span<const uint8_t> scales, float tensor_scale,
                  std::span<float> x);

}  // namespace fathom
