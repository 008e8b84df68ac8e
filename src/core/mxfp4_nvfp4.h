// Block formats of 4-bit numbers: E2M1 values that share a scale.
//
//   MXFP4 (OCP Microscaling v1.0)  blocks of 32, an E8M0 scale each
//                                  w = value * scale
//   NVFP4                          blocks of 16, an E4M3 scale each, an fp32 scale of the tensor
//                                  w = value * scale * tensor_scale
//
// Both pack two values a byte, the first in the low nibble, as checkpoints do. x, values and scales hold
// whole blocks: x.size() is a multiple of the block, values.size() == x.size() / 2, scales.size() == x.size()
// / block. A block with an infinity or a NaN gets a NaN scale, so all of it decodes to NaN.
#pragma once

#include <cstdint>
#include <span>

namespace fathom {

inline constexpr int64_t kMxfp4Block = 32;
inline constexpr int64_t kNvfp4Block = 16;

// The scale is 2^(floor(log2(amax)) - 2), the rule of the OCP standard: values in (6, 8) times the scale
// saturate.
void encode_mxfp4(std::span<const float> x, std::span<uint8_t> values, std::span<uint8_t> scales);
void decode_mxfp4(std::span<const uint8_t> values, std::span<const uint8_t> scales, std::span<float> x);

// The tensor scale that maps amax to the largest value * scale, 6 * 448. Every x must be finite.
float nvfp4_tensor_scale(std::span<const float> x);

// tensor_scale > 0. A tensor may be encoded in pieces, with the scale of the whole tensor.
void encode_nvfp4(std::span<const float> x, float tensor_scale, std::span<uint8_t> values,
                  std::span<uint8_t> scales);
void decode_nvfp4(std::span<const uint8_t> values, std::span<const uint8_t> scales, float tensor_scale,
                  std::span<float> x);

}  // namespace fathom
