#include "kernels/attention/fp4_kv_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace fathom::kernels {
namespace {

template <class Pages>
class Fp4KvPagesTest : public testing::Test {};
using Fp4Formats = testing::Types<K8V4KvPages, Nvfp4KvPages>;
TYPED_TEST_SUITE(Fp4KvPagesTest, Fp4Formats);

TYPED_TEST(Fp4KvPagesTest, EveryByteOfAPageIsOneOrTwoNumbersOrOneBlocks) {
  using Pages = TypeParam;
  EXPECT_EQ(Pages::kPositionBytes, Pages::kFp8Keys ? 104 : 72);
  EXPECT_EQ(Pages::kStripBytes % 128, 0);                         // each strip begins where its swizzle does
  std::vector<int> uses(static_cast<size_t>(Pages::kPageBytes));  // in half bytes
  for (int64_t r = 0; r < kTile; ++r)
    for (const bool value : {false, true}) {
      const bool fp8 = Pages::kFp8Keys && !value;
      for (int64_t d = 0; d < kHeadDim; ++d) {
        // From the words of paged_kv_cache.h.
        const int64_t row_bytes = fp8 ? 64 : 32, keys = Pages::kFp8Keys ? 16 * 64 : 16 * 32;
        const int64_t byte = fp8 ? d : d / 2, piece = byte / 16 ^ (fp8 ? r / 2 % 4 : r / 4 % 2);
        EXPECT_EQ(Pages::at(r, value, d), r / 16 * Pages::kStripBytes + (value ? keys : 0) +
                                              r % 16 * row_bytes + piece * 16 + byte % 16);
        uses[static_cast<size_t>(Pages::at(r, value, d))] += fp8 ? 2 : 1;
      }
      for (int64_t j = 0; j < 4; ++j) uses[static_cast<size_t>(Pages::scale_at(r, value, 8 * j))] += 2;
    }
  for (const int n : uses) ASSERT_EQ(n, 2);
}

// By brute force in double: the number of 4 significant bits that is nearest to largest / 6.
TYPED_TEST(Fp4KvPagesTest, AScaleIsASixthOfTheLargestTo4Bits) {
  std::vector<float> largest = {6, 5.99f, 6.2f, 7, 1440, 1e-5f, 0.75f};
  std::mt19937 random(4);
  std::uniform_real_distribution<double> exponent(-20, 10.4);
  for (int i = 0; i < 2000; ++i) largest.push_back(static_cast<float>(std::exp2(exponent(random))));
  for (const float x : largest) {
    double best = INFINITY;
    for (int byte = 0; byte < 248; ++byte)
      best = std::min(best,
                      std::abs(std::ldexp(1 + byte % 8 / 8.0, byte / 8 - 23) - static_cast<double>(x) / 6));
    const uint32_t byte = TypeParam::scale_of(__builtin_bit_cast(uint32_t, x));
    ASSERT_LT(byte, 248u);
    EXPECT_NEAR(std::abs(static_cast<double>(Fp8KvPages::scale(byte)) - static_cast<double>(x) / 6), best,
                1e-7 * static_cast<double>(x))
        << x;
  }
  const auto scale_of = [](float x) { return TypeParam::scale_of(__builtin_bit_cast(uint32_t, x)); };
  for (const float tiny : {0.f, 1e-45f, 1e-38f, 1e-7f}) EXPECT_EQ(scale_of(tiny), 0u) << tiny;
  for (const float huge : {2e3f, 3.4e38f}) EXPECT_EQ(scale_of(huge), 247u) << huge;
  EXPECT_EQ(scale_of(INFINITY), 255u);
  EXPECT_EQ(scale_of(NAN), 255u);
}

// Every number is a code times the scale, the nearest one, and exact in bf16; positions do not touch others.
TYPED_TEST(Fp4KvPagesTest, HoldsTheNearestCodes) {
  std::vector<uint8_t> page(static_cast<size_t>(TypeParam::kPageBytes), 0xff);
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(kTile * 2 * kHeadDim);
  for (float& x : numbers) x = std::ldexp(normal(random), static_cast<int>(random() % 8) - 4);
  const auto of = [&](int64_t r, bool value) {
    return &numbers[static_cast<size_t>((2 * r + value) * kHeadDim)];
  };
  for (int64_t r = 0; r < kTile; ++r)
    for (const bool value : {false, true}) TypeParam::put(page.data(), r, value, of(r, value));
  for (int64_t r = 0; r < kTile; ++r)
    for (const bool value : {false, true})
      for (int64_t d = 0; d < kHeadDim; ++d) {
        const float x = of(r, value)[d], got = TypeParam::get(page.data(), r, value, d);
        EXPECT_EQ(got, static_cast<float>(bf16(got)));
        if (TypeParam::kFp8Keys && !value) {
          uint8_t strips[Fp8KvPages::kPageBytes];  // the same key in FP8
          Fp8KvPages::put(strips, r, false, of(r, false));
          EXPECT_EQ(got, Fp8KvPages::get(strips, r, false, d));
          continue;
        }
        const double scale = static_cast<double>(
            Fp8KvPages::scale(page[static_cast<size_t>(TypeParam::scale_at(r, value, d))]));
        double best = INFINITY;
        for (const double code : {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0})
          best = std::min(best, std::abs(code * scale - std::abs(static_cast<double>(x))));
        EXPECT_NEAR(std::abs(static_cast<double>(got - x)), best, 1e-6 * static_cast<double>(std::abs(x)));
        EXPECT_TRUE(got == 0 || std::signbit(got) == std::signbit(x));
      }
}

// What paged_kv_cache.h says of normal numbers.
TEST(Fp4KvPagesError, OfNormalNumbers) {
  std::vector<uint8_t> page(static_cast<size_t>(Nvfp4KvPages::kPageBytes));
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  double error = 0, square = 0;
  for (int i = 0; i < 4000; ++i) {
    float numbers[kHeadDim];
    for (float& x : numbers) x = normal(random);
    Nvfp4KvPages::put(page.data(), i % kTile, true, numbers);
    for (int64_t d = 0; d < kHeadDim; ++d) {
      const double off = static_cast<double>(Nvfp4KvPages::get(page.data(), i % kTile, true, d) - numbers[d]);
      error += off * off;
      square += static_cast<double>(numbers[d]) * static_cast<double>(numbers[d]);
    }
  }
  EXPECT_NEAR(std::sqrt(error / square), 0.095, 0.001);
}

}  // namespace
}  // namespace fathom::kernels
