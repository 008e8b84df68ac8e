#include "measure/gpu_clock.h"

#include <gtest/gtest.h>

#include "cuda/device.h"

namespace fathom::measure {
namespace {

class GpuClocks : public testing::Test {
 protected:
  void SetUp() override {
    device = find_device({0});
    if (!device) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
    clock = gpu_clock(*device);
  }
  Device* device = nullptr;
  std::unique_ptr<GpuClock> clock;
};

TEST_F(GpuClocks, TimeGrowsWithTheWorkAndLeavesTheLaunchesOut) {
  const auto flushes = [&](int n) {
    return [this, n] {
      for (int i = 0; i < n; ++i) device->flush_l2();
    };
  };
  (void)clock->time(flushes(1), false);
  const auto one = clock->time(flushes(1), true), eight = clock->time(flushes(8), true);
  EXPECT_FALSE(one.waited);
  EXPECT_GT(one.ns, 0);
  EXPECT_GT(eight.ns, 4 * one.ns);
  EXPECT_GT(eight.host_ns, eight.ns);
  EXPECT_LT(eight.late_ns, 1e6);
}

TEST_F(GpuClocks, WhoWaitsForAHeldGpuIsFoundOut) {
  const auto waits = [&] {
    device->flush_l2();
    device->synchronize();
  };
  EXPECT_TRUE(clock->time(waits, true).waited);
  EXPECT_FALSE(clock->time(waits, false).waited);
}

TEST_F(GpuClocks, AnExceptionInsideLeavesTheClockUsable) {
  EXPECT_THROW(clock->time([] { throw std::runtime_error("no"); }, true), std::runtime_error);
  EXPECT_GT(clock->time([&] { device->flush_l2(); }, true).ns, 0);
}

}  // namespace
}  // namespace fathom::measure
