#include "core/mxfp4_nvfp4.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/dtype.h"
#include "core/expect.h"

namespace fathom {
namespace {

// The E2M1 numbers as the standard lists them, by code.
constexpr std::array<double, 16> kE2m1 = {0.0,  0.5,  1.0,  1.5,  2.0,  3.0,  4.0,  6.0,
                                          -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0};

// Nearest number by looking at all 16, ties to the even code; the sign of x decides between the two zeros.
uint32_t nearest_e2m1(double x) {
  const uint32_t zero = std::signbit(x) ? 8 : 0;
  uint32_t best       = zero;
  for (uint32_t code = zero; code < zero + 8; ++code) {
    const double better = std::fabs(x - kE2m1[best]) - std::fabs(x - kE2m1[code]);
    if (better > 0 || (better == 0 && code % 2 == 0)) best = code;
  }
  return best;
}

uint32_t nibble(const std::vector<uint8_t>& values, size_t i) {
  return i % 2 == 0 ? values[i / 2] % 16 : values[i / 2] / 16;
}

double largest_magnitude(const std::vector<float>& x, size_t first, size_t count) {
  double largest = 0;
  for (size_t i = first; i < first + count; ++i)
    largest = std::max(largest, std::fabs(static_cast<double>(x[i])));
  return largest;
}

// Blocks of very different size, with zeros, ties and a whole block of zeros among them.
std::vector<float> test_numbers(size_t n, int64_t block, double widest_exponent) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) {
    const size_t b = i / block;
    const int e    = static_cast<int>(widest_exponent * (b % 7 / 3.0 - 1));
    const float v  = b % 5 == 1 ? std::round(4 * normal(random)) / 4 : normal(random);
    x[i]           = b % 11 == 2 ? 0.0f : std::ldexp(v, e);
  }
  return x;
}

constexpr size_t kBlockCounts[] = {0, 1, 2, 7, 509};

TEST(Mxfp4, EncodesAsTheNaiveSearch) {
  for (const size_t blocks : kBlockCounts) {
    const std::vector<float> x = test_numbers(blocks * 32, 32, 100);
    std::vector<uint8_t> values(x.size() / 2), scales(blocks);
    encode_mxfp4(x, values, scales);
    std::vector<float> decoded(x.size());
    decode_mxfp4(values, scales, decoded);
    for (size_t i = 0; i < x.size(); ++i) {
      const double largest = largest_magnitude(x, i / 32 * 32, 32);
      const int exponent   = largest == 0 ? -127 : std::clamp(std::ilogb(largest) - 2, -127, 127);
      ASSERT_EQ(scales[i / 32], exponent + 127) << i;
      ASSERT_EQ(nibble(values, i), nearest_e2m1(std::ldexp(static_cast<double>(x[i]), -exponent))) << i;
      ASSERT_EQ(decoded[i], std::ldexp(kE2m1[nibble(values, i)], exponent)) << i;
    }
  }
}

TEST(Mxfp4, DecodesEveryNibbleWithEveryScale) {
  std::vector<uint8_t> values(16), scales(1);
  std::vector<float> x(32);
  for (size_t b = 0; b < 16; ++b) values[b] = static_cast<uint8_t>(b | (15 - b) << 4);
  for (int scale = 0; scale < 255; ++scale) {
    scales[0] = static_cast<uint8_t>(scale);
    decode_mxfp4(values, scales, x);
    for (size_t b = 0; b < 16; ++b) {
      EXPECT_EQ(x[2 * b], static_cast<float>(std::ldexp(kE2m1[b], scale - 127)));
      EXPECT_EQ(x[2 * b + 1], static_cast<float>(std::ldexp(kE2m1[15 - b], scale - 127)));
    }
  }
}

TEST(Mxfp4, HandlesTheEndsOfTheFloatRange) {
  for (const float edge : {std::numeric_limits<float>::max(), std::numeric_limits<float>::min(),
                           std::numeric_limits<float>::denorm_min(), -0x1p-126f, 0x1.8p-127f}) {
    std::vector<float> x(32, 0.0f), decoded(32);
    x[31] = edge;
    std::vector<uint8_t> values(16), scales(1);
    encode_mxfp4(x, values, scales);
    decode_mxfp4(values, scales, decoded);
    const double step = std::ldexp(1, scales[0] - 127);
    EXPECT_LE(std::fabs(static_cast<double>(decoded[31]) - edge), 2 * step) << edge;
    EXPECT_EQ(decoded[0], 0);
  }
}

TEST(Mxfp4, PoisonsOnlyTheBlockThatIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x(96, 1.0f), decoded(96);
    x[40] = bad;
    std::vector<uint8_t> values(48), scales(3);
    encode_mxfp4(x, values, scales);
    decode_mxfp4(values, scales, decoded);
    for (size_t i = 0; i < 96; ++i) EXPECT_EQ(std::isnan(decoded[i]), i / 32 == 1) << i;
  }
}

TEST(Mxfp4, RefusesSizesThatDoNotFit) {
  std::vector<float> x(64);
  std::vector<uint8_t> values(32), scales(2);
  EXPECT_THROW(encode_mxfp4(std::span(x).first(31), values, scales), ContractError);
  EXPECT_THROW(encode_mxfp4(std::span(x).first(33), values, scales), ContractError);
  EXPECT_THROW(encode_mxfp4(x, std::span(values).first(31), scales), ContractError);
  EXPECT_THROW(encode_mxfp4(x, values, std::span(scales).first(1)), ContractError);
  EXPECT_THROW(decode_mxfp4(values, scales, std::span(x).first(32)), ContractError);
}

// E4M3 scales by looking at all positive codes.
uint32_t nearest_e4m3(double x) {
  uint32_t best = 0;
  for (uint32_t code = 0; code < 0x7f; ++code) {
    const double better = std::fabs(x - static_cast<float>(fp8_e4m3::from_bits(best))) -
                          std::fabs(x - static_cast<float>(fp8_e4m3::from_bits(code)));
    if (better > 0 || (better == 0 && code % 2 == 0)) best = code;
  }
  return best;
}

TEST(Nvfp4, EncodesAsTheNaiveSearch) {
  for (const size_t blocks : kBlockCounts) {
    const std::vector<float> x = test_numbers(blocks * 16, 16, 5);
    const float tensor_scale   = nvfp4_tensor_scale(x);
    std::vector<uint8_t> values(x.size() / 2), scales(blocks);
    encode_nvfp4(x, tensor_scale, values, scales);
    std::vector<float> decoded(x.size());
    decode_nvfp4(values, scales, tensor_scale, decoded);
    for (size_t i = 0; i < x.size(); ++i) {
      // In float, as the format's definition of its scale does; the searches are in double.
      const float ratio = static_cast<float>(largest_magnitude(x, i / 16 * 16, 16)) / 6 / tensor_scale;
      ASSERT_EQ(scales[i / 16], nearest_e4m3(ratio)) << i;
      const float unit = static_cast<float>(fp8_e4m3::from_bits(scales[i / 16])) * tensor_scale;
      ASSERT_EQ(nibble(values, i), unit == 0 ? 0 : nearest_e2m1(x[i] / unit)) << i;
      ASSERT_FLOAT_EQ(decoded[i], static_cast<float>(kE2m1[nibble(values, i)] * unit)) << i;
      // The widest gap between values is 2 units, and rounding the scale moves amax by at most 6/16 of one.
      if (scales[i / 16] < 8) continue;  // a subnormal scale may be far from the wanted one
      ASSERT_LE(std::fabs(decoded[i] - x[i]), 1.001 * unit) << i;
    }
  }
}

TEST(Nvfp4, UsesTheWholeRange) {
  std::vector<float> x(32, 0.0f), decoded(32);
  x[5] = -1234.5f;
  std::vector<uint8_t> values(16), scales(2);
  const float tensor_scale = nvfp4_tensor_scale(x);
  encode_nvfp4(x, tensor_scale, values, scales);
  decode_nvfp4(values, scales, tensor_scale, decoded);
  EXPECT_EQ(scales[0], 0x7e);  // 448
  EXPECT_EQ(scales[1], 0);
  EXPECT_FLOAT_EQ(decoded[5], x[5]);
}

TEST(Nvfp4, SurvivesZerosAndTinyTensors) {
  for (const float value : {0.0f, std::numeric_limits<float>::denorm_min(), 1e-40f}) {
    std::vector<float> x(16, value), decoded(16, 1.0f);
    std::vector<uint8_t> values(8), scales(1);
    encode_nvfp4(x, nvfp4_tensor_scale(x), values, scales);
    decode_nvfp4(values, scales, nvfp4_tensor_scale(x), decoded);
    for (const float got : decoded) EXPECT_LE(std::fabs(got - value), std::numeric_limits<float>::min());
  }
}

TEST(Nvfp4, RefusesWhatItCannotScale) {
  std::vector<float> x(16, 1.0f);
  std::vector<uint8_t> values(8), scales(1);
  EXPECT_THROW(encode_nvfp4(x, 0.0f, values, scales), ContractError);
  EXPECT_THROW(encode_nvfp4(std::span(x).first(15), 1.0f, values, scales), ContractError);
  x[3] = std::numeric_limits<float>::infinity();
  EXPECT_THROW(nvfp4_tensor_scale(x), ContractError);
  encode_nvfp4(x, 1.0f, values, scales);
  EXPECT_TRUE(std::isnan(static_cast<float>(fp8_e4m3::from_bits(scales[0]))));
}

}  // namespace
}  // namespace fathom
