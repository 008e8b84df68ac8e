#include "kernels/gemm/scaled_mm_fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "cuda/device.h"
#include "kernels/guarded_device_buffer.h"

namespace fathom::kernels {
namespace {

struct Size {
  int64_t m, n, k;
};
// Around the tiles: 64 rows (one warpgroup) and 128, clusters of 256 rows, 256 columns, 128 deep; several
// times around the ring of stages; more tiles than the GPU has clusters.
constexpr Size kSizes[] = {{0, 8, 16},       {8, 0, 16},       {1, 8, 16},      {63, 256, 128},
                           {64, 264, 144},   {65, 120, 112},   {127, 136, 640}, {128, 8, 656},
                           {129, 520, 1280}, {257, 392, 2000}, {1031, 72, 272}, {64, 40000, 128},
                           {4099, 2056, 128}};

// -1, 0 and 1, few of them not 0: exact in the tensor cores' 14 bits, so that errors of indices cannot hide
// behind those of sums.
std::vector<fp8_e4m3> numbers(int64_t n, std::mt19937& random) {
  std::vector<fp8_e4m3> made;
  for (int64_t i = 0; i < n; ++i) {
    const auto bits = random();
    made.emplace_back(bits % 4 == 0 ? (bits & 16 ? 1.0f : -1.0f) : 0.0f);
  }
  return made;
}
std::vector<float> scales(int64_t n, std::mt19937& random) {
  std::uniform_real_distribution<float> from(0.25f, 4);
  std::vector<float> made(static_cast<size_t>(n));
  for (float& scale : made) scale = from(random);
  return made;
}

class ScaledMmFp8 : public testing::TestWithParam<bool> {};

TEST_P(ScaledMmFp8, IsTheProductTimesTheScales) {
  Device* const device = find_device({0});
  if (!device) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
  const bool channels = GetParam();
  std::mt19937 random(17);
  for (const Size& c : kSizes) {
    SCOPED_TRACE(testing::Message() << c.m << " x " << c.n << " x " << c.k);
    const std::vector<fp8_e4m3> a = numbers(c.m * c.k, random), b = numbers(c.n * c.k, random);
    const std::vector<float> of_a = scales(channels ? c.m : 1, random),
                             of_b = scales(channels ? c.n : 1, random);
    const GuardedDeviceBuffer a_there(a), b_there(b);
    const GuardedDeviceBuffer of_a_there(of_a), of_b_there(of_b);
    const GuardedDeviceBuffer d(std::vector<bf16>(static_cast<size_t>(c.m * c.n), bf16(-1e30f)));
    scaled_mm_fp8({a_there.data(), {c.m, c.k}}, {of_a_there.data(), {of_a_there.size()}},
                  {b_there.data(), {c.n, c.k}}, {of_b_there.data(), {of_b_there.size()}},
                  {d.data(), {c.m, c.n}}, device->stream());
    const std::vector<bf16> got = d.read();
    // All elements of a small product, every 97th of a large one.
    for (int64_t e = 0; e<c.m * c.n; e += c.m * c.n> 300'000 ? 97 : 1) {
      const int64_t i = e / c.n, j = e % c.n;
      double sum = 0;
      for (int64_t l = 0; l < c.k; ++l)
        sum += static_cast<double>(float(a[static_cast<size_t>(i * c.k + l)])) *
               float(b[static_cast<size_t>(j * c.k + l)]);
      const double want =
          sum * of_a[static_cast<size_t>(channels ? i : 0)] * of_b[static_cast<size_t>(channels ? j : 0)];
      ASSERT_NEAR(float(got[static_cast<size_t>(e)]), want, 0x1.01p-8 * std::abs(want))
          << "at (" << i << ", " << j << ")";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Scales, ScaledMmFp8, testing::Values(false, true),
                         [](const auto& of) { return of.param ? "Channels" : "Tensor"; });

}  // namespace
}  // namespace fathom::kernels
