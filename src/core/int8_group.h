// A block format of 8-bit integers: groups of 32 numbers that share a bf16 scale, 8.5 bits a number.
//
//   w = value * scale,  scale = amax / 127 rounded up to bf16,  value = round(w / scale) to nearest even
//
// A product of a value and a scale has at most 15 significant bits, so that fp32 holds it exactly. Only the
// last group of a row may be shorter. A group with an infinity or a NaN gets a NaN scale, so all of it
// decodes to NaN.
#pragma once

#include <cstdint>
#include <span>

#include "core/dtype.h"

namespace fathom {

inline constexpr int64_t kInt8Group = 32;

constexpr int64_t int8_groups(int64_t numbers) { return (numbers + kInt8Group - 1) / kInt8Group; }

// One row: values.size() == x.size(), scales.size() == int8_groups(x.size()).
void encode_int8(std::span<const float> x, std::span<int8_t> values, std::span<bf16> scales);
void decode_int8(std::span<const int8_t> values, std::span<const bf16> scales, std::span<float> x);

}  // namespace fathom
