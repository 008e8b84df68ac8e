#include "core/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace fathom {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The formats as the standards define them: widths, bias, largest number, and the result of overflow.
struct Format {
  int exponent_bits, mantissa_bits, bias;
  bool infinities;    // top exponent: infinity and NaNs
  bool nan_all_ones;  // else only the code of all ones is NaN
  double largest;     // as printed in the standard
  double beyond;      // the result of overflow
  double smallest;    // the smallest subnormal
};

template <class T>
Format format_of();
template <>
Format format_of<bf16>() {
  return {8, 7, 127, true, false, 0x1.fep127, kInf, 0x1p-133};
}
template <>
Format format_of<fp16>() {
  return {5, 10, 15, true, false, 65504, kInf, 0x1p-24};
}
template <>
Format format_of<fp8_e5m2>() {
  return {5, 2, 15, true, false, 57344, 57344, 0x1p-16};
}
template <>
Format format_of<fp8_e4m3>() {
  return {4, 3, 7, false, true, 448, 448, 0x1p-9};
}
template <>
Format format_of<fp4_e2m1>() {
  return {2, 1, 1, false, false, 6, 6, 0.5};
}

double value_by_definition(const Format& f, uint32_t code) {
  const uint32_t mantissa = code % (1u << f.mantissa_bits);
  const uint32_t exponent = (code >> f.mantissa_bits) % (1u << f.exponent_bits);
  const bool negative     = (code >> (f.mantissa_bits + f.exponent_bits)) != 0;
  const uint32_t top      = (1u << f.exponent_bits) - 1;
  double value            = 0;
  if (exponent == top && f.infinities)
    value = mantissa == 0 ? kInf : kNan;
  else if (exponent == top && f.nan_all_ones && mantissa == (1u << f.mantissa_bits) - 1)
    value = kNan;
  else if (exponent == 0)
    value = std::ldexp(mantissa, 1 - f.bias - f.mantissa_bits);
  else
    value =
        std::ldexp((1u << f.mantissa_bits) + mantissa, static_cast<int>(exponent) - f.bias - f.mantissa_bits);
  return negative ? -value : value;
}

template <class T>
std::vector<double> positive_numbers() {
  std::vector<double> values;
  for (uint32_t code = 0; code < 1u << (T::kBits - 1); ++code) {
    const double value = value_by_definition(format_of<T>(), code);
    if (std::isfinite(value)) values.push_back(value);
  }
  return values;
}

// The nearest number of the format by exhaustive search, ties to the even code.
template <class T>
double nearest(const std::vector<double>& numbers, float x) {
  const Format f         = format_of<T>();
  const double magnitude = std::fabs(static_cast<double>(x));
  const double last_step = numbers.back() - numbers[numbers.size() - 2];
  double result          = 0;
  if (magnitude >= numbers.back() + last_step / 2 && f.beyond > f.largest) {
    result = f.beyond;
  } else if (magnitude >= numbers.back()) {
    result = numbers.back();
  } else {
    const auto above   = std::upper_bound(numbers.begin(), numbers.end(), magnitude) - numbers.begin();
    const double up    = numbers[above] - magnitude;
    const double down  = magnitude - numbers[above - 1];
    const bool take_up = up < down || (up == down && above % 2 == 0);
    result             = take_up ? numbers[above] : numbers[above - 1];
  }
  return std::copysign(result, static_cast<double>(x));
}

template <class T>
class MinifloatTest : public testing::Test {};
using Formats = testing::Types<bf16, fp16, fp8_e5m2, fp8_e4m3, fp4_e2m1>;

struct FormatNames {
  template <class T>
  static std::string GetName(int) {
    return traits(dtype_of<T>).name;
  }
};
TYPED_TEST_SUITE(MinifloatTest, Formats, FormatNames);

TYPED_TEST(MinifloatTest, DecodesEveryCode) {
  for (uint32_t code = 0; code < 1u << TypeParam::kBits; ++code) {
    const double want = value_by_definition(format_of<TypeParam>(), code);
    const float got   = static_cast<float>(TypeParam::from_bits(code));
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << code;
    } else {
      EXPECT_EQ(got, want) << code;
      EXPECT_EQ(std::signbit(got), std::signbit(want)) << code;
    }
  }
  EXPECT_EQ(TypeParam::max(), format_of<TypeParam>().largest);
  EXPECT_EQ(static_cast<float>(TypeParam::from_bits(1)), format_of<TypeParam>().smallest);
}

TYPED_TEST(MinifloatTest, EncodesItsOwnNumbersExactly) {
  for (uint32_t code = 0; code < 1u << TypeParam::kBits; ++code) {
    const double value = value_by_definition(format_of<TypeParam>(), code);
    if (!std::isfinite(value)) continue;
    EXPECT_EQ(TypeParam(static_cast<float>(value)).bits, code);
  }
}

TYPED_TEST(MinifloatTest, RoundsMidpointsToEvenAndTheirNeighboursToTheNearest) {
  const std::vector<double> numbers = positive_numbers<TypeParam>();
  for (uint32_t low = 0; low + 1 < numbers.size(); ++low) {
    const float middle = static_cast<float>((numbers[low] + numbers[low + 1]) / 2);
    ASSERT_EQ(middle, (numbers[low] + numbers[low + 1]) / 2) << "a float holds every midpoint";
    const uint32_t even = low % 2 == 0 ? low : low + 1;
    const uint32_t sign = 1u << (TypeParam::kBits - 1);
    EXPECT_EQ(TypeParam(middle).bits, even) << middle;
    EXPECT_EQ(TypeParam(std::nextafter(middle, 0.0f)).bits, low) << middle;
    EXPECT_EQ(TypeParam(std::nextafter(middle, kInf)).bits, low + 1) << middle;
    EXPECT_EQ(TypeParam(-middle).bits, sign | even) << middle;
    EXPECT_EQ(TypeParam(-std::nextafter(middle, 0.0f)).bits, sign | low) << middle;
    EXPECT_EQ(TypeParam(-std::nextafter(middle, kInf)).bits, sign | (low + 1)) << middle;
  }
}

TYPED_TEST(MinifloatTest, OverflowsAsItsStandardSays) {
  const Format f                    = format_of<TypeParam>();
  const std::vector<double> numbers = positive_numbers<TypeParam>();
  // Half a step above the largest number: the first value that would round up, were there a number above.
  const float edge = static_cast<float>(numbers.back() + (numbers.back() - numbers[numbers.size() - 2]) / 2);
  EXPECT_EQ(static_cast<float>(TypeParam(std::nextafter(edge, 0.0f))), f.largest);
  for (const float x : {edge, std::nextafter(edge, kInf), std::numeric_limits<float>::max(), kInf}) {
    EXPECT_EQ(static_cast<float>(TypeParam(x)), f.beyond) << x;
    EXPECT_EQ(static_cast<float>(TypeParam(-x)), -f.beyond) << x;
  }
}

TYPED_TEST(MinifloatTest, KeepsNanWhereTheFormatHasOne) {
  const bool has_nan = format_of<TypeParam>().infinities || format_of<TypeParam>().nan_all_ones;
  // Payloads in the lower bits only, and signalling NaNs.
  for (const uint32_t word : {0x7fc00000u, 0x7f800001u, 0x7fffffffu, 0xffc00000u, 0xff800001u}) {
    const float got = static_cast<float>(TypeParam(__builtin_bit_cast(float, word)));
    if (has_nan)
      EXPECT_TRUE(std::isnan(got)) << word;
    else
      EXPECT_EQ(got, TypeParam::max()) << word;
  }
}

TYPED_TEST(MinifloatTest, AgreesWithANearestSearchOnRandomFloats) {
  const std::vector<double> numbers = positive_numbers<TypeParam>();
  std::mt19937 random(17);
  const int bias = format_of<TypeParam>().bias;
  for (int i = 0; i < 200000; ++i) {
    // Half over all floats, half with exponents the format can reach, where rounding happens.
    const uint32_t word = random();
    const float wild    = __builtin_bit_cast(float, word);
    const int exponent  = static_cast<int>(random() % (2 * bias + 24)) - bias - 20;
    const float near =
        std::ldexp(1 + static_cast<float>(word >> 9) * 0x1p-23f, exponent) * (word & 1 ? -1 : 1);
    for (const float x : {wild, near}) {
      if (std::isnan(x)) continue;
      const double want = nearest<TypeParam>(numbers, x);
      const float got   = static_cast<float>(TypeParam(x));
      ASSERT_EQ(got, want) << x;
      ASSERT_EQ(std::signbit(got), std::signbit(want)) << x;
    }
  }
}

TYPED_TEST(MinifloatTest, RoundsWithinItsUnitRoundOff) {
  const double u = traits(dtype_of<TypeParam>).round_off;
  double worst   = 0;
  for (const double value : positive_numbers<TypeParam>()) {
    if (value < std::ldexp(1, 1 - format_of<TypeParam>().bias) || value == TypeParam::max()) continue;
    const float x = static_cast<float>(value * (1 + u));  // the midpoint when value is a power of two
    worst = std::max(worst, std::fabs(static_cast<float>(TypeParam(x)) - static_cast<double>(x)) / value);
  }
  EXPECT_EQ(worst, u);  // reached, so the table is not merely an upper bound
}

TEST(Fp16, AgreesWithTheCompilersHalf) {
#ifdef __FLT16_MANT_DIG__
  std::mt19937 random(5);
  for (int i = 0; i < 300000; ++i) {
    const float x = __builtin_bit_cast(float, static_cast<uint32_t>(random()));
    if (std::isnan(x)) continue;
    ASSERT_EQ(fp16(x).bits, __builtin_bit_cast(uint16_t, static_cast<_Float16>(x))) << x;
  }
#else
  GTEST_SKIP() << "the compiler has no _Float16";
#endif
}

TEST(E8m0, IsThePowerOfTwoOfItsCode) {
  for (uint32_t code = 0; code < 255; ++code) {
    const float value = static_cast<float>(e8m0::from_bits(code));
    EXPECT_EQ(value, std::ldexp(1.0, static_cast<int>(code) - 127)) << code;
    EXPECT_EQ(e8m0(value).bits, code);
    EXPECT_EQ(e8m0(std::nextafter(value * 2, 0.0f)).bits, code)
        << "everything up to the next power rounds down";
    EXPECT_EQ(e8m0(std::nextafter(value, 0.0f)).bits, code == 0 ? 0 : code - 1);
  }
  EXPECT_TRUE(std::isnan(static_cast<float>(e8m0::from_bits(255))));
  EXPECT_EQ(e8m0(0.0f).bits, 0);
  EXPECT_EQ(e8m0(kInf).bits, 254);
  EXPECT_EQ(e8m0(kNan).bits, 255);
  EXPECT_EQ(e8m0(-1.0f).bits, 255);
}

TEST(DType, TableAgreesWithTheTypes) {
  EXPECT_STREQ(traits(dtype_of<float>).name, "fp32");
  EXPECT_STREQ(traits(dtype_of<const uint8_t>).name, "uint8");
  EXPECT_EQ(std::size(kDTypes), static_cast<size_t>(DType::uint8) + 1);
  EXPECT_EQ(traits(dtype_of<double>).round_off, std::numeric_limits<double>::epsilon() / 2);
  EXPECT_EQ(traits(dtype_of<float>).round_off, std::numeric_limits<float>::epsilon() / 2);
  const auto bits = []<class... T>() {
    return std::vector<bool>{traits(dtype_of<T>).bits == 8 * sizeof(T)...};
  };
  for (const bool same : bits.operator()<double, float, bf16, fp16, fp8_e5m2, fp8_e4m3, e8m0, int64_t,
                                         int32_t, uint32_t, int8_t, uint8_t>())
    EXPECT_TRUE(same);
  EXPECT_EQ(traits(dtype_of<fp4_e2m1>).bits, fp4_e2m1::kBits);
}

static_assert(bf16(1.0f).bits == 0x3f80 && fp16(1.0f).bits == 0x3c00 && fp8_e4m3(1.0f).bits == 0x38);
static_assert(static_cast<float>(fp8_e4m3(1e9f)) == 448 && static_cast<float>(fp4_e2m1(2.5f)) == 2);
static_assert(std::is_trivially_copyable_v<bf16> && std::is_trivially_default_constructible_v<bf16>);

}  // namespace
}  // namespace fathom
