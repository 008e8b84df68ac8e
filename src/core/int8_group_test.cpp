#include "core/int8_group.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/expect.h"

namespace fathom {
namespace {

struct Row {
  std::vector<int8_t> values;
  std::vector<bf16> scales;
  std::vector<float> decoded;

  explicit Row(const std::vector<float>& x)
      : values(x.size()),
        scales(static_cast<size_t>(int8_groups(static_cast<int64_t>(x.size())))),
        decoded(x.size()) {
    encode_int8(x, values, scales);
    decode_int8(values, scales, decoded);
  }
};

TEST(Int8Group, EveryNumberIsWithinHalfAStep) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const size_t n : {0, 1, 31, 32, 33, 97}) {
    std::vector<float> x(n);
    for (float& number : x) number = std::ldexp(normal(random), static_cast<int>(random() % 40) - 20);
    const Row row(x);
    for (size_t first = 0; first < n; first += 32) {
      double largest = 0;
      for (size_t i = first; i < std::min(n, first + 32); ++i)
        largest = std::max(largest, std::fabs(static_cast<double>(x[i])));
      // The scale exceeds amax / 127 by less than a bf16 ulp, and fp32 division rounds once.
      const double step = largest / 127 * (1 + 0x1p-7);
      for (size_t i = first; i < std::min(n, first + 32); ++i) {
        EXPECT_LE(std::fabs(static_cast<double>(row.decoded[i]) - x[i]), step / 2 * (1 + 1e-6))
            << n << " " << i;
        EXPECT_EQ(
            static_cast<double>(row.decoded[i]),
            static_cast<double>(row.values[i]) * static_cast<double>(static_cast<float>(row.scales[i / 32])));
      }
    }
  }
}

TEST(Int8Group, LargestNumbersReachTheLargestCodes) {
  for (const float largest : {1.0f, 127.0f, 0x1.fffffep+127f, 0x1p-100f, 1e-3f}) {
    const Row row({largest, -largest, 0, largest / 2});
    EXPECT_LE(std::abs(row.values[0]), 127);
    EXPECT_GE(std::abs(row.values[0]), 126) << largest;
    EXPECT_EQ(row.values[1], -row.values[0]);
    EXPECT_EQ(row.values[2], 0);
  }
}

TEST(Int8Group, ZerosStayZeroAndSmallNumbersStayFinite) {
  for (const float number : Row(std::vector<float>(33, 0.0f)).decoded) EXPECT_EQ(number, 0);
  const Row tiny({0x1p-149f, -0x1p-149f});
  for (const float number : tiny.decoded) EXPECT_LE(std::fabs(number), 0x1p-126f);
}

TEST(Int8Group, AGroupThatIsNotFiniteIsNan) {
  for (const float odd : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x(64, 1.0f);
    x[40] = odd;
    const Row row(x);
    for (size_t i = 0; i < 64; ++i) EXPECT_EQ(std::isnan(row.decoded[i]), i >= 32) << i;
  }
}

TEST(Int8Group, WrongSizesAreNamed) {
  std::vector<float> x(33);
  std::vector<int8_t> values(33);
  std::vector<bf16> scales(1);
  EXPECT_THROW(encode_int8(x, values, scales), ContractError);
  EXPECT_THROW(decode_int8(values, scales, x), ContractError);
}

}  // namespace
}  // namespace fathom
