#include "book/float_model.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "core/dtype.h"

namespace fathom::book {
namespace {

// Values of every size and of every kind of tie, both signs.
template <typename Visit>
void for_each_value(Visit visit) {
  uint64_t state = 1;
  for (int i = 0; i < 200000; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    // A float of few bits is often a tie in a narrower format.
    const auto word  = static_cast<uint32_t>(state >> 32) & (i % 2 == 0 ? 0xffffffff : 0xfff80000);
    const auto value = std::bit_cast<float>(word);
    if (!std::isnan(value)) visit(value);
  }
  for (float value : {0.0f, -0.0f, 1.0f, 256.0f, 448.0f, 464.0f, 465.0f, 57344.0f, 65504.0f, 65520.0f, 1e-45f,
                      3e38f, std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()})
    visit(value);
}

template <typename Core>
void compare_with(const FloatFormat& format) {
  for_each_value([&](float value) {
    ASSERT_EQ(encode(format, value, Rounding::nearest_even), Core(value).bits) << value;
  });
  for (uint32_t bits = 0; bits < 1u << Core::kBits; ++bits) {
    const double mine = decode(format, bits), core = static_cast<float>(Core::from_bits(bits));
    ASSERT_TRUE(mine == core || (std::isnan(mine) && std::isnan(core))) << bits;
  }
}

// The lab's own conversions are written with integers, and for one format at a time.
TEST(FloatModel, NarrowFormatsAreTheLabs) {
  compare_with<bf16>(kBf16);
  compare_with<fp16>(kFp16);
  compare_with<fp8_e4m3>(kE4m3);
  compare_with<fp8_e5m2>(kE5m2);
}

TEST(FloatModel, Fp32IsTheProcessors) {
  for_each_value([](float value) {
    ASSERT_EQ(decode(kFp32, std::bit_cast<uint32_t>(value)), value);
    const double between = value * 1.00000007;  // no float
    ASSERT_EQ(encode(kFp32, between, Rounding::nearest_even),
              std::bit_cast<uint32_t>(static_cast<float>(between)));
  });
}

TEST(FloatModel, TowardZeroNeverGrows) {
  for (const FloatFormat& format : {kFp32, kFp16, kBf16, kE4m3, kE5m2})
    for_each_value([&](float value) {
      if (std::isinf(value)) return;
      const double kept = round_to(format, value, Rounding::toward_zero);
      ASSERT_LE(std::fabs(kept), std::fabs(value));
      // And there is no number of the format between the two.
      const uint32_t next = encode(format, kept, Rounding::toward_zero) + 1;
      const double above  = std::fabs(decode(format, next));
      ASSERT_TRUE(above > std::fabs(value) || std::isnan(above) || value == kept) << value;
    });
}

// The golden values of the book.
TEST(FloatModel, GoldenValues) {
  EXPECT_EQ(round_to(kBf16, 256.0 + 1.0, Rounding::nearest_even), 256);
  EXPECT_EQ(round_to(kE4m3, 1e6, Rounding::nearest_even), 448);
  EXPECT_EQ(round_to(kE5m2, 1e6, Rounding::nearest_even), 57344);
  EXPECT_TRUE(std::isinf(round_to(kFp16, 1e6, Rounding::nearest_even)));
}

// fp32's sums of ones and of 1/k stop growing where the book's chapter 11 says; checked against float
// arithmetic.
TEST(FloatModel, SumsAreThoseOfFloats) {
  const int32_t n = 300000;
  float sum = 0, back = 0;
  for (int32_t k = 1; k <= n; ++k) sum += 1.0f / static_cast<float>(k);
  for (int32_t k = n; k >= 1; --k) back += 1.0f / static_cast<float>(k);
  EXPECT_EQ(sum_in(kFp32, Rounding::nearest_even, Terms::harmonic, SumOrder::forward, n), sum);
  EXPECT_EQ(sum_in(kFp32, Rounding::nearest_even, Terms::harmonic, SumOrder::backward, n), back);
  EXPECT_NEAR(sum_in_double(Terms::harmonic, n), std::log(n) + 0.5772156649015329, 1e-5);
  EXPECT_NEAR(sum_in(kFp32, Rounding::nearest_even, Terms::harmonic, SumOrder::forward, 2097152), 15.4036827,
              1e-6);
  EXPECT_EQ(sum_in(kBf16, Rounding::nearest_even, Terms::ones, SumOrder::forward, 1000), 256);
  EXPECT_EQ(sum_in(kBf16, Rounding::nearest_even, Terms::ones, SumOrder::pairwise, 1024), 1024);
  EXPECT_NEAR(sum_in_double(Terms::alternating, n), std::log(2.0), 1e-5);
  EXPECT_EQ(sum_in(kBf16, Rounding::nearest_even, Terms::ones, SumOrder::pairwise, 0), 0);
}

}  // namespace
}  // namespace fathom::book
