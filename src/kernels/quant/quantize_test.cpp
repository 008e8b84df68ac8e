#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/expect.h"
#include "cuda/device.h"
#include "kernels/guarded_device_buffer.h"
#include "kernels/quant/quantize.h"
#include "kernels/quant/quantized_matrix.h"

namespace fathom::kernels {
namespace {

// How many bytes differ, and the first, for a message that is short where everything is wrong.
template <class T>
void expect_same_bytes(const std::vector<T>& got, const std::vector<T>& want, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  size_t different = 0, first = 0;
  for (size_t i = got.size(); i-- > 0;)
    if (std::memcmp(&got[i], &want[i], sizeof(T)) != 0) ++different, first = i;
  if (different == 0) return;
  const auto number = [](const T& value) {
    if constexpr (requires { value.bits; })
      return static_cast<double>(value.bits);
    else
      return static_cast<double>(value);
  };
  ADD_FAILURE() << what << ": " << different << " of " << got.size() << " differ, first [" << first
                << "]: " << number(got[first]) << ", not " << number(want[first]);
}

// Every NaN is like another: the GPU's has other bits than the host's.
std::vector<float> without_nan_bits(std::vector<float> values) {
  for (float& value : values)
    if (std::isnan(value)) value = std::numeric_limits<float>::quiet_NaN();
  return values;
}
std::vector<bf16> without_nan_bits(std::vector<bf16> values) {
  for (bf16& value : values)
    if (std::isnan(static_cast<float>(value))) value = bf16(std::numeric_limits<float>::quiet_NaN());
  return values;
}
template <class Scale>
std::vector<Scale> without_nan_bits(std::vector<Scale> values) {
  return values;
}

template <class Format>
class Quantize : public testing::Test {
 protected:
  void SetUp() override {
    device_ = find_device({0});
    if (!device_) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
  }

  // The GPU's codes, scales and numbers, and the host's, of a matrix whose tensor scale is `given`, or found
  // by tensor_scale() if that is 0. Arrays begin `shift` elements behind an aligned address.
  void check(int64_t rows, int64_t columns, const std::vector<bf16>& x, float given, bool transposed = false,
             int64_t shift = 0) const {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns << ", scale " << given
                                    << (transposed ? ", transposed" : "") << ", shift " << shift);
    QuantizedMatrix<Format> host(rows, columns);
    const View<const bf16, 2> on_host(x.data(), {rows, columns});

    std::vector<bf16> shifted(static_cast<size_t>(shift));
    shifted.insert(shifted.end(), x.begin(), x.end());
    const GuardedDeviceBuffer<bf16> x_on_gpu(shifted);
    const GuardedDeviceBuffer<CodeOf<Format>> codes(static_cast<int64_t>(host.codes.size()) + shift);
    const GuardedDeviceBuffer<ScaleOf<Format>> scales(static_cast<int64_t>(host.scales.size()));
    const GuardedDeviceBuffer<float> tensor_scale(std::vector<float>{given});
    const GuardedDeviceBuffer<bf16> out(rows * columns + shift);
    const View<const bf16, 2> on_gpu(x_on_gpu.data() + shift, {rows, columns});
    const Format q =
        views<Format>(rows, columns, codes.data() + shift, scales.data(), tensor_scale.data(), transposed);

    host.tensor_scale = given;
    if constexpr (kScaleIsGiven<Format>) {
      if (given == 0) {
        tensor_scale_reference(on_host, host.format());
        kernels::tensor_scale(on_gpu, q, device_->stream());
        expect_same_bytes(without_nan_bits(tensor_scale.read()),
                          without_nan_bits(std::vector<float>{host.tensor_scale}), "tensor scale");
      }
    }
    quantize_reference(on_host, host.format(transposed));
    quantize(on_gpu, q, device_->stream());
    std::vector<CodeOf<Format>> got = codes.read();
    got.erase(got.begin(), got.begin() + shift);
    expect_same_bytes(got, host.codes, "codes");
    if constexpr (!kScaleIsGiven<Format> || kInBlocks<Format>)
      if (!x.empty())
        expect_same_bytes(without_nan_bits(scales.read()), without_nan_bits(host.scales), "scales");

    std::vector<bf16> want(x.size());
    dequantize_reference(host.format(transposed), View<bf16, 2>(want.data(), {rows, columns}));
    dequantize(q, View<bf16, 2>(out.data() + shift, {rows, columns}), device_->stream());
    std::vector<bf16> numbers = out.read();
    numbers.erase(numbers.begin(), numbers.begin() + shift);
    expect_same_bytes(without_nan_bits(numbers), without_nan_bits(want), "numbers");
  }

  Device* device_ = nullptr;
};
TYPED_TEST_SUITE(Quantize, QuantizedFormats);

// Around the groups, a warp's 1024 numbers, a block's 8192, and the 16384 that a block holds of a long row.
TYPED_TEST(Quantize, IsTheReferenceBitForBit) {
  for (const int64_t columns :
       {0,   1,    2,    7,    8,    9,    15,   16,   17,   31,    32,    33,    127,  128,
        129, 1009, 1023, 1024, 1025, 2880, 8191, 8192, 8193, 16384, 16392, 32776, 65537})
    for (const int64_t rows : {0, 1, 9}) {
      if (rows > 1 && columns > 10000) continue;
      for (const Numbers kind : {Numbers::varied, Numbers::ties, Numbers::not_finite}) {
        if (rows * columns == 0 && kind != Numbers::varied) continue;
        const bool given = kind == Numbers::ties || (kind == Numbers::not_finite && columns % 2 == 0);
        this->check(rows, columns, test_numbers<TypeParam>(rows * columns, kind, 7), given ? 1.0f : 0.0f);
      }
    }
}

TYPED_TEST(Quantize, TakesArraysThatAreNotAlignedAndTransposedScales) {
  for (const int64_t columns : {1, 40, 256, 1000, 8200})
    for (const int64_t rows : {1, 5})
      for (const int64_t shift : {0, 1, 4})
        for (const bool transposed : {false, true})
          this->check(rows, columns, test_numbers<TypeParam>(rows * columns, Numbers::varied, 5), 0,
                      transposed, shift);
}

template <class Format>
class QuantizeGiven : public Quantize<Format> {};
TYPED_TEST_SUITE(QuantizeGiven, GivenScaleFormats);

TYPED_TEST(QuantizeGiven, RoundsEveryBf16Number) {
  // The scale of the largest bf16 number.
  const double codes  = code_magnitudes<TypeParam>().back() * (kInBlocks<TypeParam> ? 448 : 1);
  const float largest = static_cast<float>(0x1.fep127 / codes);
  // In an order that gives blocks, too, numbers of every size.
  std::vector<bf16> x;
  for (uint32_t i = 0; i < 65536; ++i) x.push_back(bf16::from_bits(i * 40503 & 0xffff));
  for (const float given : {1.0f, 0x1p-64f, largest, 0.0371f, 5.3e4f, 1.0f / 3, 0x1.fffffep20f,
                            std::numeric_limits<float>::quiet_NaN()})
    this->check(64, 1024, x, given);
  // Of finite ones alone, each group with a largest number of its own.
  std::erase_if(x, [](bf16 v) { return !std::isfinite(static_cast<float>(v)); });
  for (const float given : {1.0f, 0x1p-64f, largest, 0.0371f}) this->check(1, std::ssize(x), x, given);
}

// Every scale's mantissa that a bf16 number gives, with many quotients each: the GPU's division is its own.
TYPED_TEST(Quantize, DividesAsTheHostDoes) {
  std::mt19937 random(3);
  for (const float given : {0x1.234567p0f, 0x1.fffffep-3f, 0x1.000002p1f}) {
    std::vector<bf16> x;
    for (uint32_t row = 0; row < 512; ++row) {
      const uint32_t largest = (120 + row / 128 * 5) << 7 | row % 128;
      for (uint32_t c = 0; c < 1024; ++c) {
        const uint32_t bits = static_cast<uint32_t>(random());
        // Up to 16 binades below the largest number, which every group of 16 has.
        x.push_back(
            bf16::from_bits((c % 16 == row % 16 ? largest : largest - bits % 2048) | (bits >> 31 << 15)));
      }
    }
    this->check(512, 1024, x, given);
  }
}

TEST(QuantizeContract, ShapesThatDoNotFitAreRefused) {
  // The contract is checked before anything is launched.
  const View<const bf16, 2> x(nullptr, {4, 128});
  const auto scales = [](int64_t rows, int64_t columns) { return View<float, 2>(nullptr, {rows, columns}); };
  using Blocks      = BlockScaled<fp8_e4m3>;
  EXPECT_THROW(quantize(x, Blocks{{nullptr, {4, 127}}, scales(4, 1)}, nullptr), ContractError);
  EXPECT_THROW(quantize(x, Blocks{{nullptr, {4, 128}}, scales(4, 2)}, nullptr), ContractError);
  EXPECT_THROW(quantize(x, Blocks{{nullptr, {4, 128}, {256, 1}}, scales(4, 1)}, nullptr), ContractError);
  EXPECT_THROW(quantize(x, RowScaled<int8_t>{{nullptr, {4, 128}}, {nullptr, {3}}}, nullptr), ContractError);
  EXPECT_THROW(quantize(x, Mxfp4{{nullptr, {4, 128}}, {nullptr, {4, 4}}}, nullptr), ContractError);
  EXPECT_THROW(quantize(x, Nvfp4{{nullptr, {4, 64}}, {nullptr, {4, 8}}, {nullptr, {0}}}, nullptr),
               ContractError);
  const View<bf16, 2> out(nullptr, {4, 128});
  EXPECT_THROW(dequantize(Blocks{{nullptr, {4, 128}}, scales(3, 1)}, out, nullptr), ContractError);
  EXPECT_THROW(dequantize(Mxfp8{{nullptr, {5, 128}}, {nullptr, {4, 4}}}, out, nullptr), ContractError);
  EXPECT_THROW(tensor_scale(x, TensorScaled<fp8_e4m3>{{nullptr, {4, 128}}, {nullptr, {0}}}, nullptr),
               ContractError);
}

}  // namespace
}  // namespace fathom::kernels
