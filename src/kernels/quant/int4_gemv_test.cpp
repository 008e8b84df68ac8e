#include "kernels/quant/int4_gemv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/expect.h"
#include "cuda/device.h"
#include "kernels/guarded_device_buffer.h"

namespace fathom::kernels {
namespace {

constexpr double kRoundOff = 0x1p-24;
const float kNan           = std::numeric_limits<float>::quiet_NaN();

size_t at(int64_t i) { return static_cast<size_t>(i); }

class Int4 : public testing::Test {
 protected:
  void SetUp() override {
    device = find_device({0});
    if (!device) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
  }
  Device* device = nullptr;
  std::mt19937 random{17};
};

// M matrices of random codes, scales and zero points, and rows of x with NaN between and behind them.
struct Product {
  int64_t M, T, N, K, group;
  bool symmetric;
  int64_t groups = (K + group - 1) / group, stride = K + 24;
  std::vector<uint8_t> codes, zeros;
  std::vector<fp16> scales;
  std::vector<bf16> x;
  GuardedDeviceBuffer<uint8_t> packed_codes, packed_zeros;
  GuardedDeviceBuffer<uint32_t> packed_scales;
  GuardedDeviceBuffer<bf16> x_there;

  struct Shape {
    int64_t M, T, N, K, group = 128;
    bool symmetric = false;
  };
  Product(const Shape& of, std::mt19937& random)
      : M(of.M),
        T(of.T),
        N(of.N),
        K(of.K),
        group(of.group),
        symmetric(of.symmetric),
        codes(at(M * N * K / 2)),
        zeros(at(M * N * groups), uint8_t{8}),
        scales(at(M * N * groups)),
        x(at(M * (T + 1) * stride), bf16(kNan)),
        packed_codes(shape().code_bytes()),
        packed_zeros(shape().zero_bytes()),
        packed_scales(shape().scale_words()),
        x_there(static_cast<int64_t>(x.size())) {
    std::uniform_int_distribution<int> byte(0, 255);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (uint8_t& two : codes) two = static_cast<uint8_t>(byte(random));
    if (!symmetric)
      for (uint8_t& zero : zeros) zero = static_cast<uint8_t>(byte(random) & 15);
    for (fp16& scale : scales) {
      scale = fp16(0.02f * (1.5f + uniform(random)));
      scale.bits |= 1;  // so that it has eleven significant bits
    }
    for (int64_t m = 0; m < M; ++m)
      for (int64_t t = 0; t < T; ++t)
        for (int64_t k = 0; k < K; ++k) x[x_at(m, t) + at(k)] = bf16(uniform(random));
    x_there.write(x);
    const GuardedDeviceBuffer codes_there(codes), zeros_there(zeros);
    const GuardedDeviceBuffer scales_there(scales);
    pack_int4({codes_there.view({M, N, K / 2}),
               scales_there.view({M, N, groups}),
               {symmetric ? nullptr : zeros_there.data(), {M, N, groups}}},
              packed(), find_device({0})->stream());
    find_device({0})->synchronize();
  }

  PackedInt4 shape() const { return {.matrices = M, .rows = N, .depth = K, .group = group}; }
  PackedInt4 packed() const {
    PackedInt4 w = shape();
    w.codes      = packed_codes.data();
    w.scales     = packed_scales.data();
    w.zeros      = symmetric ? nullptr : packed_zeros.data();
    return w;
  }
  size_t x_at(int64_t m, int64_t t) const { return at((m * (T + 1) + t) * stride); }
  View<const bf16, 3> x_view(int64_t first, int64_t n) const {
    return {x_there.data() + first * stride, {M, n, K}, {(T + 1) * stride, stride, 1}};
  }

  struct Sum {
    double value, error;
  };
  Sum sum(int64_t m, int64_t t, int64_t n) const {
    double value = 0, size = 0;
    for (int64_t k = 0; k < K; ++k) {
      const int code       = codes[at((m * N + n) * (K / 2) + k / 2)] >> (k % 2 * 4) & 15;
      const size_t grid    = at((m * N + n) * groups + k / group);
      const double product = static_cast<double>(static_cast<float>(x[x_at(m, t) + at(k)])) *
                             static_cast<double>(static_cast<float>(scales[grid])) * (code - zeros[grid]);
      value += product, size += std::fabs(product);
    }
    return {value, 4 * std::sqrt(static_cast<double>(K)) * kRoundOff * size};
  }
};

// `product` times its rows is what sums in double say; of large ones some outputs are compared.
void expect_sums(const Product& p, StreamRef stream) {
  const int64_t y_stride = p.N + 5;
  const bool large       = p.M * p.N * p.K > 1000000;
  const GuardedDeviceBuffer y(std::vector<float>(at(p.M * p.T * y_stride), kNan));
  int4_gemv(p.x_view(0, p.T), p.packed(), {y.data(), {p.M, p.T, p.N}, {p.T * y_stride, y_stride, 1}}, stream);
  const std::vector<float> got = y.read();
  for (int64_t m = 0; m < p.M; ++m)
    for (int64_t t = 0; t < p.T; ++t)
      for (int64_t n = 0; n < y_stride; ++n) {
        const float value = got[at((m * p.T + t) * y_stride + n)];
        if (n >= p.N) {
          ASSERT_TRUE(std::isnan(value)) << "behind row " << t << " at " << n;
          continue;
        }
        if (large && n % 13 != 0 && n + 20 < p.N) continue;
        const Product::Sum sum = p.sum(m, t, n);
        ASSERT_NEAR(value, sum.value, sum.error + kRoundOff * std::fabs(sum.value))
            << "matrix " << m << ", row " << t << ", output " << n;
      }
}

TEST_F(Int4, AgreesWithSumsInDouble) {
  struct Shape {
    int64_t M, N, K;
  };
  // Around units of 16 rows and 64 columns, steps of 128 columns, fewer and more steps than warps, and
  // launches of 8192 columns. The last three have several units for each CTA, of one or two matrices.
  for (const Shape& s : {Shape{1, 1, 64},
                         {1, 15, 128},
                         {1, 16, 192},
                         {3, 17, 448},
                         {1, 127, 1024},
                         {2, 129, 1088},
                         {1, 200, 2880},
                         {1, 320, 4096},
                         {2, 128, 8192},
                         {2, 40, 8256},
                         {1, 8500, 320},
                         {16, 640, 1472},
                         {40, 100, 448}})
    for (const int64_t T : {1, 2, 3, 5, 8})
      for (const int64_t group : {64, 128})
        for (const bool symmetric : {false, true}) {
          if (s.M * s.N * s.K > 1000000 && T != (symmetric ? 8 : 1)) continue;
          SCOPED_TRACE(testing::Message() << s.M << " of " << s.N << " x " << s.K << ", T " << T
                                          << ", groups of " << group << (symmetric ? ", symmetric" : ""));
          expect_sums(Product({s.M, T, s.N, s.K, group, symmetric}, random), device->stream());
          if (HasFatalFailure()) return;
        }
}

TEST_F(Int4, ARowsBitsDoNotDependOnOtherRows) {
  const Product p({.M = 2, .T = 8, .N = 300, .K = 1472}, random);
  const GuardedDeviceBuffer<float> all(2 * 8 * 300), one(2 * 300);
  int4_gemv(p.x_view(0, 8), p.packed(), all.view({2, 8, 300}), device->stream());
  const std::vector<float> together = all.read();
  for (int64_t t = 0; t < 8; ++t) {
    int4_gemv(p.x_view(t, 1), p.packed(), one.view({2, 1, 300}), device->stream());
    const std::vector<float> alone = one.read();
    for (int64_t m = 0; m < 2; ++m)
      for (int64_t n = 0; n < 300; ++n)
        ASSERT_EQ(alone[at(m * 300 + n)], together[at((m * 8 + t) * 300 + n)]) << "row " << t;
  }
}

// Scales have eleven significant bits, and bf16 eight: a kernel that rounds scale times code to bf16 fails.
TEST_F(Int4, WeightsAreNotRounded) {
  Product p({.M = 1, .T = 1, .N = 16, .K = 128}, random);
  for (int64_t k = 0; k < 128; ++k) p.x[at(k)] = bf16(k == 77 ? 1.0f : 0.0f);
  p.x_there.write(p.x);
  const GuardedDeviceBuffer<float> y(16);
  int4_gemv(p.x_view(0, 1), p.packed(), y.view({1, 1, 16}), device->stream());
  const std::vector<float> got = y.read();
  for (int64_t n = 0; n < 16; ++n) EXPECT_EQ(got[at(n)], static_cast<float>(p.sum(0, 0, n).value));
}

TEST_F(Int4, NoRowsAndNoOutputs) {
  const PackedInt4 none{.matrices = 2, .rows = 0, .depth = 128};
  const bf16 x{};
  float y = 0;
  int4_gemv({&x, {2, 3, 128}}, none, {&y, {2, 3, 0}}, device->stream());
  int4_gemv({&x, {2, 0, 128}}, {.matrices = 2, .rows = 8, .depth = 128}, {&y, {2, 0, 8}}, device->stream());
  pack_int4({{nullptr, {2, 0, 64}}, {nullptr, {2, 0, 1}}, {nullptr, {2, 0, 1}}}, none, device->stream());
  EXPECT_THROW(int4_gemv({&x, {1, 9, 128}}, {.matrices = 1, .rows = 8, .depth = 128}, {&y, {1, 9, 8}},
                         device->stream()),
               ContractError);
  EXPECT_THROW(int4_gemv({&x, {1, 1, 128}}, {.matrices = 1, .rows = 8, .depth = 128, .group = 32},
                         {&y, {1, 1, 8}}, device->stream()),
               ContractError);
}

}  // namespace
}  // namespace fathom::kernels
