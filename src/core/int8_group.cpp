#include "core/int8_group.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/expect.h"

// Compiled with -O3 (CMakeLists.txt): the loops over a group vectorise.

namespace fathom {
namespace {

constexpr float kLargestCode = 127;

// Upwards, so that the group's largest number has a code of at most 127. x >= 0.
bf16 round_up_to_bf16(float x) {
  const auto word = std::bit_cast<uint32_t>(x);
  return bf16::from_bits((word >> 16) + ((word & 0xffff) != 0));
}

void encode_group(std::span<const float> x, int8_t* values, bf16& scale) {
  int32_t largest_bits = 0;  // numbers of at least 0 have the order of their bits
  for (const float number : x)
    largest_bits = std::max(largest_bits, std::bit_cast<int32_t>(number) & 0x7fffffff);
  const auto largest = std::bit_cast<float>(largest_bits);
  if (!std::isfinite(largest)) {
    scale = bf16(std::numeric_limits<float>::quiet_NaN());
    std::fill_n(values, x.size(), int8_t{0});
    return;
  }
  scale            = round_up_to_bf16(largest / kLargestCode);
  const float unit = static_cast<float>(scale);
  if (unit == 0) {
    std::fill_n(values, x.size(), int8_t{0});
    return;
  }
  // Between 2^23 and 2^24 floats are the integers, so that the addition rounds.
  constexpr float kRounding = 12582912;
  for (size_t i = 0; i < x.size(); ++i)
    values[i] = static_cast<int8_t>(std::bit_cast<int32_t>(x[i] / unit + kRounding) -
                                    std::bit_cast<int32_t>(kRounding));
}

void expect_int8_sizes(size_t numbers, size_t values, size_t scales) {
  FATHOM_EXPECT(
      values == numbers && scales == static_cast<size_t>(int8_groups(static_cast<int64_t>(numbers))),
      "a row has a value for each number and a scale for each group of 32");
}

}  // namespace

void encode_int8(std::span<const float> x, std::span<int8_t> values, std::span<bf16> scales) {
  expect_int8_sizes(x.size(), values.size(), scales.size());
  for (size_t g = 0; g < scales.size(); ++g) {
    const size_t first = g * kInt8Group;
    encode_group(x.subspan(first, std::min<size_t>(kInt8Group, x.size() - first)), values.data() + first,
                 scales[g]);
  }
}

void decode_int8(std::span<const int8_t> values, std::span<const bf16> scales, std::span<float> x) {
  expect_int8_sizes(x.size(), values.size(), scales.size());
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(values[i]) * static_cast<float>(scales[i / kInt8Group]);
}

}  // namespace fathom
