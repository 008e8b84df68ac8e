#include "core/mxfp4_nvfp4.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/dtype.h"
#include "core/expect.h"

namespace fathom {
namespace {

void expect_sizes(int64_t block, size_t x, size_t values, size_t scales) {
  FATHOM_EXPECT(x % block == 0, fmt::format("{} numbers are no whole blocks of {}: pad them", x, block));
  FATHOM_EXPECT(values == x / 2, fmt::format("{} numbers need {} bytes of values, not {}", x, x / 2, values));
  FATHOM_EXPECT(scales == x / block, fmt::format("{} numbers need {} scales, not {}", x, x / block, scales));
}

// The largest magnitude; NaN if any is not finite.
float amax(std::span<const float> x) {
  float largest = 0;
  for (const float value : x) {
    if (!std::isfinite(value)) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

// The nearest E2M1 of every x / unit, two a byte; all zeros where unit is 0.
void encode_values(std::span<const float> x, float unit, uint8_t* values) {
  const auto code = [&](float value) -> uint32_t { return unit > 0 ? fp4_e2m1(value / unit).bits : 0; };
  for (size_t i = 0; i < x.size(); i += 2)
    values[i / 2] = static_cast<uint8_t>(code(x[i]) | code(x[i + 1]) << 4);
}

uint8_t mxfp4_scale(float largest) {
  const int code = e8m0(largest).bits;
  return static_cast<uint8_t>(code == 255 ? code
                                          : std::max(code - 2, 0));  // 6, the largest value, is 1.5 * 2^2
}

float value_at(std::span<const uint8_t> values, size_t i) {
  return static_cast<float>(fp4_e2m1::from_bits(values[i / 2] >> (i % 2 * 4) & 15));
}

}  // namespace

void encode_mxfp4(std::span<const float> x, std::span<uint8_t> values, std::span<uint8_t> scales) {
  expect_sizes(kMxfp4Block, x.size(), values.size(), scales.size());
  for (size_t b = 0; b < scales.size(); ++b) {
    const auto block = x.subspan(b * kMxfp4Block, kMxfp4Block);
    scales[b]        = mxfp4_scale(amax(block));
    encode_values(block, static_cast<float>(e8m0::from_bits(scales[b])), &values[b * kMxfp4Block / 2]);
  }
}

void decode_mxfp4(std::span<const uint8_t> values, std::span<const uint8_t> scales, std::span<float> x) {
  expect_sizes(kMxfp4Block, x.size(), values.size(), scales.size());
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = value_at(values, i) * static_cast<float>(e8m0::from_bits(scales[i / kMxfp4Block]));
}

float nvfp4_tensor_scale(std::span<const float> x) {
  const float largest = amax(x);
  FATHOM_EXPECT(std::isfinite(largest),
                "NVFP4 cannot scale a tensor that holds an infinity or a NaN: remove it first");
  return std::max(largest / (fp4_e2m1::max() * fp8_e4m3::max()),
                  std::numeric_limits<float>::min());  // never 0
}

void encode_nvfp4(std::span<const float> x, float tensor_scale, std::span<uint8_t> values,
                  std::span<uint8_t> scales) {
  expect_sizes(kNvfp4Block, x.size(), values.size(), scales.size());
  FATHOM_EXPECT(tensor_scale > 0,
                fmt::format("the tensor scale of NVFP4 must be positive, not {}", tensor_scale));
  for (size_t b = 0; b < scales.size(); ++b) {
    const auto block = x.subspan(b * kNvfp4Block, kNvfp4Block);
    const fp8_e4m3 scale(amax(block) / fp4_e2m1::max() / tensor_scale);
    scales[b] = scale.bits;
    encode_values(block, static_cast<float>(scale) * tensor_scale, &values[b * kNvfp4Block / 2]);
  }
}

void decode_nvfp4(std::span<const uint8_t> values, std::span<const uint8_t> scales, float tensor_scale,
                  std::span<float> x) {
  expect_sizes(kNvfp4Block, x.size(), values.size(), scales.size());
  for (size_t i = 0; i < x.size(); ++i)
    x[i] =
        value_at(values, i) * static_cast<float>(fp8_e4m3::from_bits(scales[i / kNvfp4Block])) * tensor_scale;
}

}  // namespace fathom
