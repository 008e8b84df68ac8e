#include "kernels/gemm/gemm_bf16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "cuda/device.h"
#include "kernels/guarded_device_buffer.h"

namespace fathom::kernels {
namespace {

// Sizes around the tiles: 64 rows (one warpgroup) and 128, clusters of 256 rows, 256 columns, 64 deep;
// several times around the ring of stages; more tiles than the GPU has clusters; three waves of tiles of
// 240 columns.
TEST(GemmBf16, IsTheProduct) {
  Device* const device = find_device({0});
  if (!device) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
  struct Case {
    int64_t m, n, k;
  };
  std::mt19937 random{17};
  std::normal_distribution<float> normal;
  for (const Case& c : {Case{0, 8, 8},
                        {8, 0, 8},
                        {1, 8, 8},
                        {63, 256, 64},
                        {64, 264, 72},
                        {65, 248, 56},
                        {127, 256, 320},
                        {128, 8, 328},
                        {129, 520, 640},
                        {256, 256, 64},
                        {257, 264, 1000},
                        {1031, 72, 136},
                        {64, 40000, 64},
                        {4099, 2056, 64},
                        {4097, 2872, 72}}) {
    SCOPED_TRACE(testing::Message() << c.m << " x " << c.n << " x " << c.k);
    const auto numbers = [&](int64_t n) {
      std::vector<bf16> values;
      for (int64_t i = 0; i < n; ++i) values.emplace_back(normal(random));
      return values;
    };
    const std::vector<bf16> a = numbers(c.m * c.k), b = numbers(c.n * c.k);
    const GuardedDeviceBuffer a_on_gpu(a), b_on_gpu(b);
    const GuardedDeviceBuffer d(std::vector<bf16>(static_cast<size_t>(c.m * c.n), bf16(-1e30f)));
    gemm_bf16({a_on_gpu.data(), {c.m, c.k}}, {b_on_gpu.data(), {c.n, c.k}}, {d.data(), {c.m, c.n}},
              device->stream());
    device->synchronize();
    const std::vector<bf16> got = d.read();
    // All elements of a small product, every 97th of a large one.
    for (int64_t e = 0; e<c.m * c.n; e += c.m * c.n> 300'000 ? 97 : 1) {
      const int64_t i = e / c.n, j = e % c.n;
      double want = 0, magnitude = 0;
      for (int64_t l = 0; l < c.k; ++l) {
        const double product = static_cast<double>(float(a[static_cast<size_t>(i * c.k + l)])) *
                               float(b[static_cast<size_t>(j * c.k + l)]);
        want += product;
        magnitude += std::abs(product);
      }
      const double bound =
          0x1p-8 * std::abs(want) + 4 * std::sqrt(static_cast<double>(c.k)) * 0x1p-23 * magnitude;
      ASSERT_NEAR(float(got[static_cast<size_t>(e)]), want, bound) << "at (" << i << ", " << j << ")";
    }
  }
}

}  // namespace
}  // namespace fathom::kernels
