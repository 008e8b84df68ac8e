#include "kernels/attention/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/expect.h"
#include "cuda/device.h"
#include "kernels/attention/rope.h"
#include "kernels/guarded_device_buffer.h"

namespace fathom::kernels {
namespace {

class RopeTable : public testing::Test {
 protected:
  void SetUp() override {
    if (!find_device({0})) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
  }
};

int64_t ulps_apart(float a, float b) {
  const auto line = [](float v) {
    const auto bits = __builtin_bit_cast(int32_t, v);
    return bits < 0 ? int64_t{INT32_MIN} - bits : int64_t{bits};
  };
  return std::abs(line(a) - line(b));
}

TEST_F(RopeTable, AgreesWithTheReference) {
  std::vector<float> frequencies(32, 0);
  for (size_t k = 0; k < 29; ++k) frequencies[k] = std::pow(150000.0f, -static_cast<float>(k) / 29);
  frequencies[3] = 0.7f;
  for (const int64_t count : {0, 1, 2, 7, 8, 9, 63, 129, 5000}) {
    std::vector<int32_t> positions(static_cast<size_t>(count));
    for (size_t t = 0; t < positions.size(); ++t) positions[t] = static_cast<int32_t>(t * 131071 / 4999);
    if (count > 6) positions[6] = -1;
    GuardedDeviceBuffer<int32_t> on_positions(positions);
    GuardedDeviceBuffer<float> on_frequencies(frequencies), table(count * 64);
    rope_table(on_positions.view<1>({count}), on_frequencies.view<1>({32}), 1.3465735f,
               table.view<2>({count, 64}), find_device({0})->stream());
    const auto got = table.read();
    std::vector<float> expected(got.size());
    rope_table_reference({positions.data(), {count}}, {frequencies.data(), {32}}, 1.3465735f,
                         {expected.data(), {count, 64}}, {});
    for (size_t i = 0; i < got.size(); ++i) {
      if (positions[i / 64] < 0)
        ASSERT_TRUE(std::isfinite(got[i]));
      else
        ASSERT_LE(ulps_apart(got[i], expected[i]), 2) << "at " << i << ": " << got[i] << ", " << expected[i];
    }
  }
}

TEST_F(RopeTable, ShapesThatDoNotFitAreABrokenContract) {
  GuardedDeviceBuffer<float> x(64);
  GuardedDeviceBuffer<int32_t> ids(64);
  EXPECT_THROW(rope_table(ids.view<1>({1}), x.view<1>({16}), 1, x.view<2>({1, 32}), nullptr), ContractError);
}

}  // namespace
}  // namespace fathom::kernels
