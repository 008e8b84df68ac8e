// MXFP8 (OCP Microscaling v1.0): blocks of 32 E4M3 values that share an E8M0 scale, w = value * scale.
//
// The scale is 2^ceil(log2(amax / 448)), as NVIDIA's training recipes choose it: no value saturates. (The
// rule of the OCP standard, 2^(floor(log2(amax)) - 8), saturates values in (448, 512) times the scale.)
//
// x holds whole blocks: x.size() is a multiple of 32, values.size() == x.size(), scales.size() == x.size() /
// 32. A block with an infinity or a NaN gets a NaN scale and zeros, so all of it decodes to NaN.
#pragma once

#include <cstdint>
#include <span>

#include "core/dtype.h"

namespace fathom {

inline constexpr int64_t kMxfp8Block = 32;

void encode_mxfp8(std::span<const float> x, std::span<fp8_e4m3> values, std::span<e8m0> scales);
void decode_mxfp8(std::span<const fp8_e4m3> values, std::span<const e8m0> scales, std::span<float> x);

}  // namespace fathom
