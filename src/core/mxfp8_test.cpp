#include "core/mxfp8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/expect.h"

namespace fathom {
namespace {

// The nearest E4M3 number by looking at all of one sign, ties to the even code.
uint32_t nearest_code(double x) {
  const uint32_t zero = std::signbit(x) ? 0x80 : 0;
  uint32_t best       = zero;
  for (uint32_t code = zero; code < zero + 0x7f; ++code) {
    const double better = std::fabs(x - static_cast<float>(fp8_e4m3::from_bits(best))) -
                          std::fabs(x - static_cast<float>(fp8_e4m3::from_bits(code)));
    if (better > 0 || (better == 0 && code % 2 == 0)) best = code;
  }
  return best;
}

// The smallest power of two, from 2^-127 on, with which the largest number of the block is at most 448.
int naive_exponent(const std::vector<float>& x, size_t first) {
  double largest = 0;
  for (size_t i = first; i < first + 32; ++i) largest = std::max(largest, std::fabs(double{x[i]}));
  int exponent = -127;
  while (std::ldexp(448, exponent) < largest) ++exponent;
  return exponent;
}

TEST(Mxfp8, EncodesAsTheNaiveSearch) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const size_t blocks : {0, 1, 2, 7, 257}) {
    std::vector<float> x(blocks * 32);
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t b = i / 32;
      // Blocks of very different size, some of ties, of zeros, and with a largest number at the threshold.
      const float v = b % 5 == 1 ? std::round(8 * normal(random)) / 8 : normal(random);
      x[i]          = b % 11 == 2 ? 0.0f : std::ldexp(v, static_cast<int>(b % 7) * 35 - 105);
      if (i % 32 == 0 && b % 3 == 0) x[i] = b % 2 == 0 ? 448.0f : std::nextafter(448.0f, 1000.0f);
    }
    std::vector<fp8_e4m3> values(x.size());
    std::vector<e8m0> scales(blocks);
    encode_mxfp8(x, values, scales);
    std::vector<float> decoded(x.size());
    decode_mxfp8(values, scales, decoded);
    for (size_t i = 0; i < x.size(); ++i) {
      const int exponent = naive_exponent(x, i / 32 * 32);
      ASSERT_EQ(scales[i / 32].bits, exponent + 127) << i;
      ASSERT_EQ(values[i].bits, nearest_code(std::ldexp(double{x[i]}, -exponent))) << i;
      ASSERT_EQ(decoded[i], std::ldexp(static_cast<float>(values[i]), exponent)) << i;
    }
  }
}

TEST(Mxfp8, HandlesTheEndsOfTheFloatRange) {
  // From 0x1.fp127 on the nearest E4M3 number is 2^128, which a float cannot hold.
  for (const float edge : {0x1.efp127f, std::numeric_limits<float>::min(),
                           std::numeric_limits<float>::denorm_min(), -0x1p-126f}) {
    std::vector<float> x(32, 0.0f), decoded(32);
    x[31] = edge;
    std::vector<fp8_e4m3> values(32);
    std::vector<e8m0> scales(1);
    encode_mxfp8(x, values, scales);
    decode_mxfp8(values, scales, decoded);
    const double step = std::ldexp(1, scales[0].bits - 127);
    EXPECT_LE(std::fabs(double{decoded[31]} - edge), 16 * step) << edge;  // the widest gap is 32
    EXPECT_EQ(decoded[0], 0);
  }
}

TEST(Mxfp8, PoisonsOnlyTheBlockThatIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x(96, 1.0f), decoded(96);
    x[40] = bad;
    std::vector<fp8_e4m3> values(96);
    std::vector<e8m0> scales(3);
    encode_mxfp8(x, values, scales);
    decode_mxfp8(values, scales, decoded);
    for (size_t i = 0; i < 96; ++i) EXPECT_EQ(std::isnan(decoded[i]), i / 32 == 1) << i;
  }
}

TEST(Mxfp8, RefusesSizesThatDoNotFit) {
  std::vector<float> x(64);
  std::vector<fp8_e4m3> values(64);
  std::vector<e8m0> scales(2);
  EXPECT_THROW(encode_mxfp8(std::span(x).first(33), values, scales), ContractError);
  EXPECT_THROW(encode_mxfp8(x, std::span(values).first(63), scales), ContractError);
  EXPECT_THROW(encode_mxfp8(x, values, std::span(scales).first(1)), ContractError);
  EXPECT_THROW(decode_mxfp8(values, scales, std::span(x).first(32)), ContractError);
}

}  // namespace
}  // namespace fathom
