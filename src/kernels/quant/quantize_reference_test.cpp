#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/quant/quantize.h"
#include "kernels/quant/quantized_matrix.h"

namespace fathom::kernels {
namespace {

// Everything is found by search, in double, with the definitions of the formats alone.
template <class Format>
class QuantizeReference : public testing::Test {
 protected:
  static constexpr bool kPowerOfTwo = std::is_same_v<ScaleOf<Format>, e8m0>;
  static constexpr bool kTwoLevels  = std::is_same_v<Format, Nvfp4>;
  using Matrix                      = QuantizedMatrix<Format>;

  const std::vector<double> magnitudes_ = code_magnitudes<Format>();
  const double largest_                 = magnitudes_.back();

  // The number nearest to x, ties to the even code, of ascending ones that begin with code 0.
  static double nearest(const std::vector<double>& numbers, double x) {
    const double magnitude = std::min(std::abs(x), numbers.back());
    size_t best            = 0;
    for (size_t code = 0; code < numbers.size(); ++code) {
      const double gain = std::abs(magnitude - numbers[best]) - std::abs(magnitude - numbers[code]);
      if (gain > 0 || (gain == 0 && code % 2 == 0)) best = code;
    }
    return std::copysign(numbers[best], x);
  }

  // What the code at (r, c) stands for.
  static double code_value(const Matrix& m, int64_t r, int64_t c) {
    if constexpr (kPacked<Format>) {
      const uint32_t byte = m.codes[static_cast<size_t>(r * code_columns<Format>(m.columns) + c / 2)];
      return static_cast<float>(fp4_e2m1::from_bits(c % 2 == 0 ? byte & 15 : byte >> 4));
    } else {
      return static_cast<float>(m.codes[static_cast<size_t>(r * m.columns + c)]);
    }
  }
  static double scale_value(const Matrix& m, int64_t r, int64_t c) {
    int64_t at = r * scale_columns<Format>(m.columns);
    if constexpr (kInBlocks<Format>) at += c / Format::kBlock;
    if constexpr (kScaleIsGiven<Format> && !kTwoLevels) return m.tensor_scale;
    return static_cast<float>(m.scales[static_cast<size_t>(at)]);
  }

  // The scale of a group whose largest magnitude is amax.
  double wanted_scale(float amax, const Matrix& m) const {
    if constexpr (kPowerOfTwo && kPacked<Format>)  // the standard's rule
      return std::ldexp(1, amax == 0 ? -127 : std::max(std::ilogb(amax) - 2, -127));
    if constexpr (kPowerOfTwo) {  // the smallest that saturates nothing
      int exponent = -127;
      while (std::ldexp(largest_, exponent) < amax) ++exponent;
      return std::ldexp(1, exponent);
    }
    if constexpr (kTwoLevels) {
      const float ratio = static_cast<float>(amax / 6.0) / m.tensor_scale;
      return nearest(code_magnitudes<TensorScaled<fp8_e4m3>>(), ratio);
    }
    if constexpr (kScaleIsGiven<Format>) return m.tensor_scale;
    return static_cast<float>(std::max(amax / largest_, 0x1p-64));
  }

  void check(const std::vector<bf16>& x, Matrix& m) const {
    quantize_reference({x.data(), {m.rows, m.columns}}, m.format());
    std::vector<bf16> out(x.size());
    dequantize_reference(m.format(), View<bf16, 2>(out.data(), {m.rows, m.columns}));
    int64_t group = m.columns;
    if constexpr (kInBlocks<Format>) group = Format::kBlock;
    for (int64_t r = 0; r < m.rows; ++r)
      for (int64_t first = 0; first < m.columns; first += group) {
        const auto number = [&](int64_t c) {
          return static_cast<float>(x[static_cast<size_t>(r * m.columns + c)]);
        };
        const int64_t end = std::min(first + group, m.columns);
        float amax        = 0;
        for (int64_t c = first; c < end; ++c) amax = std::max(amax, std::abs(number(c)));
        const double scale = scale_value(m, r, first);
        ASSERT_EQ(scale, wanted_scale(amax, m)) << r << ", " << first;
        const float unit = static_cast<float>(scale) * (kTwoLevels ? m.tensor_scale : 1.0f);
        for (int64_t c = first; c < end; ++c) {
          const float quotient = unit == 0 ? 0 : number(c) / unit;
          const double code    = code_value(m, r, c);
          ASSERT_EQ(code, nearest(magnitudes_, quotient))
              << r << ", " << c << ": " << number(c) << " / " << unit;
          if (!std::is_same_v<CodeOf<Format>, int8_t>) {  // which has one zero
            ASSERT_EQ(std::signbit(code), std::signbit(quotient)) << r << ", " << c;
          }
          const float decoded = kTwoLevels ? static_cast<float>(code * scale) * m.tensor_scale
                                           : static_cast<float>(code * scale);
          ASSERT_EQ(static_cast<float>(out[static_cast<size_t>(r * m.columns + c)]),
                    static_cast<float>(bf16(decoded)))
              << r << ", " << c;
        }
      }
  }
};
TYPED_TEST_SUITE(QuantizeReference, QuantizedFormats);

TYPED_TEST(QuantizeReference, IsTheNearestCodeAndTheScaleOfItsGroup) {
  for (const int64_t rows : {0, 1, 3})
    for (const int64_t columns : {0, 1, 2, 15, 16, 17, 31, 32, 33, 127, 128, 129, 257, 1009})
      for (const Numbers kind : {Numbers::varied, Numbers::ties}) {
        SCOPED_TRACE(testing::Message()
                     << rows << " x " << columns << (kind == Numbers::ties ? " ties" : ""));
        const std::vector<bf16> x = test_numbers<TypeParam>(rows * columns, kind, 7);
        QuantizedMatrix<TypeParam> m(rows, columns);
        if constexpr (kScaleIsGiven<TypeParam>)
          if (kind == Numbers::varied) tensor_scale_reference({x.data(), {rows, columns}}, m.format());
        this->check(x, m);
      }
}

template <class Format>
class QuantizeReferenceGiven : public QuantizeReference<Format> {};
TYPED_TEST_SUITE(QuantizeReferenceGiven, GivenScaleFormats);

// A scale that does not come from the numbers: most are too large for it, or too small.
TYPED_TEST(QuantizeReferenceGiven, SaturatesWhereTheScaleIsTooSmall) {
  for (const float given : {0x1p-64f, 0.0371f, 5.3e4f, 0x1p116f}) {
    QuantizedMatrix<TypeParam> m(3, 1009);
    m.tensor_scale = given;
    this->check(test_numbers<TypeParam>(3 * 1009, Numbers::varied, 11), m);
  }
}

TYPED_TEST(QuantizeReference, PoisonsOnlyTheGroupThatIsNotFinite) {
  int64_t group = 300;
  if constexpr (kInBlocks<TypeParam>) group = TypeParam::kBlock;
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<bf16> x(3 * 300, bf16(1)), out(x.size());
    x[300 + 37] = bf16(bad);
    QuantizedMatrix<TypeParam> m(3, 300);
    quantize_reference({x.data(), {3, 300}}, m.format());
    dequantize_reference(m.format(), View<bf16, 2>(out.data(), {3, 300}));
    for (int64_t i = 0; i < 900; ++i) {
      const float got = static_cast<float>(out[static_cast<size_t>(i)]);
      if (std::is_same_v<TypeParam, TensorScaled<CodeOf<TypeParam>>>) {  // the scale is 1, and stays it
        if (i == 337 && std::isinf(bad)) {
          EXPECT_EQ(got, std::copysign(static_cast<float>(this->largest_), bad));
        } else {
          EXPECT_EQ(std::isnan(got), i == 337) << i;
        }
      } else {
        EXPECT_EQ(std::isnan(got), i / 300 == 1 && i % 300 / group == 37 / group) << i;
      }
    }
    if constexpr (kScaleIsGiven<TypeParam>) {
      tensor_scale_reference({x.data(), {3, 300}}, m.format());
      EXPECT_TRUE(std::isnan(m.tensor_scale));
      quantize_reference({x.data(), {3, 300}}, m.format());
      dequantize_reference(m.format(), View<bf16, 2>(out.data(), {3, 300}));
      for (const bf16 value : out) EXPECT_TRUE(std::isnan(static_cast<float>(value)));
    }
  }
}

TEST(QuantizeReference, ScalesOfTensorsTakeTheLargestNumberToTheLargestCode) {
  const std::vector<bf16> x = {bf16(3), bf16(-896), bf16(0), bf16(5)};
  QuantizedMatrix<TensorScaled<fp8_e4m3>> e4m3(2, 2);
  QuantizedMatrix<TensorScaled<fp8_e5m2>> e5m2(2, 2);
  QuantizedMatrix<Nvfp4> nvfp4(2, 2);
  const View<const bf16, 2> view(x.data(), {2, 2}), none(x.data(), {0, 2});
  tensor_scale_reference(view, e4m3.format());
  tensor_scale_reference(view, e5m2.format());
  tensor_scale_reference(view, nvfp4.format());
  EXPECT_EQ(e4m3.tensor_scale, 2);
  EXPECT_EQ(e5m2.tensor_scale, 0x1p-6f);
  EXPECT_EQ(nvfp4.tensor_scale, 896.0f / 2688);
  tensor_scale_reference(none, e4m3.format());
  EXPECT_EQ(e4m3.tensor_scale, kSmallestScale);
}

// The last byte of a row of odd length.
TEST(QuantizeReference, PacksTwoCodesAByteTheFirstInTheLowNibble) {
  const std::vector<bf16> x = {bf16(6), bf16(-1), bf16(0.5f), bf16(-6), bf16(3), bf16(2)};
  QuantizedMatrix<Mxfp4> m(2, 3);
  quantize_reference({x.data(), {2, 3}}, m.format());
  EXPECT_EQ(m.codes, (std::vector<uint8_t>{0xa7, 0x01, 0x5f, 0x04}));
  EXPECT_EQ(m.scales[0].bits, 127);
}

}  // namespace
}  // namespace fathom::kernels
