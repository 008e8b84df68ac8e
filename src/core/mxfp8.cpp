#include "core/mxfp8.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/expect.h"

namespace fathom {
namespace {

void expect_sizes(size_t x, size_t values, size_t scales) {
  FATHOM_EXPECT(x % kMxfp8Block == 0,
                fmt::format("{} numbers are no whole blocks of {}: pad them", x, kMxfp8Block));
  FATHOM_EXPECT(values == x, fmt::format("{} numbers need as many values, not {}", x, values));
  FATHOM_EXPECT(scales == x / kMxfp8Block,
                fmt::format("{} numbers need {} scales, not {}", x, x / kMxfp8Block, scales));
}

e8m0 scale_for(std::span<const float> block) {
  float amax = 0;
  for (const float value : block) {
    if (!std::isfinite(value)) return e8m0::from_bits(255);
    amax = std::max(amax, std::fabs(value));
  }
  if (amax == 0) return e8m0::from_bits(0);
  // amax = fraction 2^exponent with a fraction in [0.5, 1), and 448 = 0.875 2^9.
  int exponent;
  const float fraction = std::frexp(amax, &exponent);
  const int power      = exponent - 9 + (fraction > 0.875f ? 1 : 0);
  return e8m0::from_bits(static_cast<uint32_t>(std::max(power + 127, 0)));
}

}  // namespace

void encode_mxfp8(std::span<const float> x, std::span<fp8_e4m3> values, std::span<e8m0> scales) {
  expect_sizes(x.size(), values.size(), scales.size());
  for (size_t b = 0; b < scales.size(); ++b) {
    scales[b]        = scale_for(x.subspan(b * kMxfp8Block, kMxfp8Block));
    const float unit = static_cast<float>(scales[b]);
    for (size_t i = b * kMxfp8Block; i < (b + 1) * kMxfp8Block; ++i)
      values[i] = std::isnan(unit) ? fp8_e4m3::from_bits(0) : fp8_e4m3(x[i] / unit);
  }
}

void decode_mxfp8(std::span<const fp8_e4m3> values, std::span<const e8m0> scales, std::span<float> x) {
  expect_sizes(x.size(), values.size(), scales.size());
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(values[i]) * static_cast<float>(scales[i / kMxfp8Block]);
}

}  // namespace fathom
