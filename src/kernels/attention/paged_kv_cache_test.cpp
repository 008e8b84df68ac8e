#include "kernels/attention/paged_kv_cache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace fathom::kernels {
namespace {

using Fp8 = Fp8KvPages;

TEST(Bf16KvPages, EveryByteOfAnFp8PageIsOneNumbersOrOneBlocks) {
  std::vector<int> uses(static_cast<size_t>(Fp8::kPageBytes));
  for (int64_t r = 0; r < kTile; ++r)
    for (const int64_t value : {0, 1}) {
      for (int64_t d = 0; d < kHeadDim; ++d) {
        // From the words of paged_kv_cache.h: strips of 16 positions; keys, values, scales of keys, scales of
        // values.
        const int64_t strip = r / 16 * (2 * 16 * 64 + 2 * 16 * 4);
        EXPECT_EQ(Fp8::at(r, d) + value * Fp8::kCodeBytes,
                  strip + value * 16 * 64 + r % 16 * 64 + ((d / 16) ^ (r / 2 % 4)) * 16 + d % 16);
        EXPECT_EQ(Fp8::scale_at(r, d) + value * Fp8::kScaleBytes,
                  strip + 2 * 16 * 64 + value * 16 * 4 + r % 16 * 4 + d % 32 / 8);
        ++uses[static_cast<size_t>(Fp8::at(r, d) + value * Fp8::kCodeBytes)];
      }
      for (int64_t j = 0; j < 4; ++j)
        ++uses[static_cast<size_t>(Fp8::scale_at(r, 8 * j) + value * Fp8::kScaleBytes)];
    }
  for (const int n : uses) ASSERT_EQ(n, 1);
}

TEST(Bf16KvPages, AScaleIsTheOneThatMeetsTheLargestBest) {
  std::vector<float> largest = {1, 1.9999f, 240, 447.99997f, 448, 448.0001f, 480, 511, 1e4f, 57344};
  std::mt19937 random(3);
  std::uniform_real_distribution<double> exponent(-13, 15.8);
  for (int i = 0; i < 2000; ++i) largest.push_back(static_cast<float>(std::exp2(exponent(random))));
  for (const float x : largest) {
    double best = INFINITY;
    for (int e = -23; e <= 7; ++e)
      for (int m = 0; m < 8; ++m) {
        const double scale = std::ldexp(1 + m / 8.0, e);
        const double code  = static_cast<float>(fp8_e4m3(static_cast<float>(x / scale)));
        if (code >= 224) best = std::min(best, std::abs(code * scale - x));
      }
    const uint32_t byte = Fp8::scale_of(__builtin_bit_cast(uint32_t, x));
    ASSERT_LT(byte, 248u);
    const double scale = std::ldexp(1 + byte % 8 / 8.0, static_cast<int>(byte / 8) - 23);
    EXPECT_EQ(Fp8::scale(byte), scale);
    const double code = static_cast<float>(fp8_e4m3(static_cast<float>(x / scale)));
    EXPECT_GE(code, 240) << x;
    EXPECT_EQ(std::abs(code * scale - x), best) << x;
  }
}

TEST(Bf16KvPages, ScalesEndSomewhere) {
  const auto scale_of = [](float x) { return Fp8::scale_of(__builtin_bit_cast(uint32_t, x)); };
  for (const float tiny : {0.f, 1e-45f, 1e-38f, 1e-30f, 1e-6f}) EXPECT_EQ(scale_of(tiny), 0u) << tiny;
  for (const float huge : {2e5f, 1e9f, 3.4e38f}) EXPECT_EQ(scale_of(huge), 247u) << huge;
  for (const float none : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    EXPECT_EQ(scale_of(none), 255u);
}

TEST(Bf16KvPages, Fp8HoldsNumbersToFourBitsAndBf16HoldsThemExactly) {
  std::vector<uint8_t> page(static_cast<size_t>(Fp8::kPageBytes), 0xff);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (int64_t r = 0; r < kTile; ++r)
    for (const bool value : {false, true}) {
      float numbers[kHeadDim], largest[4] = {};
      for (int64_t d = 0; d < kHeadDim; ++d) {
        numbers[d] = std::ldexp(normal(random), static_cast<int>(random() % 20) - 12);
        if (d % 32 / 8 == r % 7) numbers[d] = 0;
        largest[d % 32 / 8] = std::max(largest[d % 32 / 8], std::fabs(numbers[d]));
      }
      Fp8::put(page.data(), r, value, numbers);
      for (int64_t d = 0; d < kHeadDim; ++d) {
        const float got = Fp8::get(page.data(), r, value, d);
        // Half a unit of 4 bits, or of the block's subnormal codes: 2^-9 of a scale below largest / 224.
        const float error = std::max(std::fabs(numbers[d]) / 16, largest[d % 32 / 8] / 224 * 0x1p-10f);
        EXPECT_NEAR(got, numbers[d], error);
        EXPECT_EQ(got, static_cast<float>(bf16(got)));
      }
    }
}

TEST(Bf16KvPages, NumbersTooLargeSaturate) {
  std::vector<uint8_t> page(static_cast<size_t>(Fp8::kPageBytes));
  float numbers[kHeadDim] = {1e6f, -1e9f, 50000};
  Fp8::put(page.data(), 9, true, numbers);
  EXPECT_EQ(Fp8::get(page.data(), 9, true, 0), 107520);
  EXPECT_EQ(Fp8::get(page.data(), 9, true, 1), -107520);
  EXPECT_EQ(Fp8::get(page.data(), 9, true, 2), 49920);
  EXPECT_EQ(Fp8::get(page.data(), 9, true, 3), 0);
}

}  // namespace
}  // namespace fathom::kernels
