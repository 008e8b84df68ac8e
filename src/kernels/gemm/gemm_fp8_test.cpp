#include "kernels/gemm/gemm_fp8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "cuda/device.h"
#include "kernels/guarded_device_buffer.h"

namespace fathom::kernels {
namespace {

struct Size {
  int64_t m, n, k;
};
// Around the tiles: 64 rows (one warpgroup) and 128, clusters of 256 rows, 256 columns, 128 deep; several
// times around the ring of stages; more than 32 blocks of k; more tiles than the GPU has clusters.
constexpr Size kSizes[] = {{0, 8, 16},       {8, 0, 16},       {1, 8, 16},       {63, 256, 128},
                           {64, 264, 144},   {65, 120, 112},   {127, 136, 640},  {128, 8, 656},
                           {129, 520, 1280}, {256, 256, 128},  {257, 392, 2000}, {300, 272, 4240},
                           {1031, 72, 272},  {64, 40000, 128}, {4099, 2056, 128}};

template <class T, class Make>
std::vector<T> made(int64_t n, Make make) {
  std::vector<T> values;
  for (int64_t i = 0; i < n; ++i) values.emplace_back(make());
  return values;
}

// Numbers of which sums of 128 products and of k products are exact in 14 bits: -1, 0 and 1, few of them not
// 0. So the tensor cores' short accumulator changes nothing, and errors of indices cannot hide behind it.
class GemmFp8 : public testing::Test {
 protected:
  void SetUp() override {
    device_ = find_device({0});
    if (!device_) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
  }
  std::vector<fp8_e4m3> numbers(int64_t n) {
    return made<fp8_e4m3>(n, [this] {
      const auto bits = random_();
      return bits % 4 == 0 ? (bits & 16 ? 1.0f : -1.0f) : 0.0f;
    });
  }
  std::vector<float> scales(int64_t n) {
    return made<float>(n, [this] { return std::uniform_real_distribution<float>(0.25f, 4)(random_); });
  }
  // All elements of a small product, every 97th of a large one; `want(i, j)` returns the value and the sum of
  // the magnitudes of its parts.
  template <class Want>
  static void expect_near(const std::vector<bf16>& got, const Size& c, Want want) {
    for (int64_t e = 0; e<c.m * c.n; e += c.m * c.n> 300'000 ? 97 : 1) {
      const auto [value, magnitude] = want(e / c.n, e % c.n);
      const double bound            = 0x1p-8 * std::abs(value) + 0x1p-20 * magnitude;
      ASSERT_NEAR(float(got[static_cast<size_t>(e)]), value, bound)
          << "at (" << e / c.n << ", " << e % c.n << ")";
    }
  }

  Device* device_ = nullptr;
  std::mt19937 random_{17};
};

TEST_F(GemmFp8, IsTheProductTimesTheScale) {
  for (const Size& c : kSizes) {
    SCOPED_TRACE(testing::Message() << c.m << " x " << c.n << " x " << c.k);
    const std::vector<fp8_e4m3> a = numbers(c.m * c.k), b = numbers(c.n * c.k);
    const GuardedDeviceBuffer a_on_gpu(a), b_on_gpu(b);
    const GuardedDeviceBuffer d(std::vector<bf16>(static_cast<size_t>(c.m * c.n), bf16(-1e30f)));
    gemm_fp8({a_on_gpu.data(), {c.m, c.k}}, {b_on_gpu.data(), {c.n, c.k}}, 0.75f, {d.data(), {c.m, c.n}},
             device_->stream());
    expect_near(d.read(), c, [&](int64_t i, int64_t j) {
      double value = 0;
      for (int64_t l = 0; l < c.k; ++l)
        value +=
            0.75 * float(a[static_cast<size_t>(i * c.k + l)]) * float(b[static_cast<size_t>(j * c.k + l)]);
      return std::pair(value, std::abs(value));
    });
  }
}

TEST_F(GemmFp8, TakesTheScaleOfEachBlock) {
  for (const Size& c : kSizes) {
    SCOPED_TRACE(testing::Message() << c.m << " x " << c.n << " x " << c.k);
    const int64_t blocks_k = (c.k + 127) / 128, blocks_n = (c.n + 127) / 128;
    const int64_t a_stride = (c.m + 3) / 4 * 4, b_stride = (blocks_k + 3) / 4 * 4;
    const std::vector<fp8_e4m3> a = numbers(c.m * c.k), b = numbers(c.n * c.k);
    const std::vector<float> of_a = scales(blocks_k * a_stride), of_b = scales(blocks_n * b_stride);
    const GuardedDeviceBuffer a_on_gpu(a), b_on_gpu(b);
    const GuardedDeviceBuffer of_a_on_gpu(of_a), of_b_on_gpu(of_b);
    const GuardedDeviceBuffer d(std::vector<bf16>(static_cast<size_t>(c.m * c.n), bf16(-1e30f)));
    gemm_fp8_block_scaled({a_on_gpu.data(), {c.m, c.k}}, {of_a_on_gpu.data(), {blocks_k, c.m}, {a_stride, 1}},
                          {b_on_gpu.data(), {c.n, c.k}},
                          {of_b_on_gpu.data(), {blocks_n, blocks_k}, {b_stride, 1}}, {d.data(), {c.m, c.n}},
                          device_->stream());
    expect_near(d.read(), c, [&](int64_t i, int64_t j) {
      double value = 0, magnitude = 0;
      for (int64_t block = 0; block < blocks_k; ++block) {
        double sum = 0;
        for (int64_t l = block * 128; l < std::min(c.k, block * 128 + 128); ++l)
          sum += static_cast<double>(float(a[static_cast<size_t>(i * c.k + l)])) *
                 float(b[static_cast<size_t>(j * c.k + l)]);
        const double scaled = sum * of_a[static_cast<size_t>(block * a_stride + i)] *
                              of_b[static_cast<size_t>(j / 128 * b_stride + block)];
        value += scaled;
        magnitude += std::abs(scaled);
      }
      return std::pair(value, magnitude);
    });
  }
}

}  // namespace
}  // namespace fathom::kernels
