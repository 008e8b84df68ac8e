#include "machine/nvml.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fathom::machine {
namespace {

TEST(ClockEvents, AreNamed) {
  EXPECT_TRUE(clock_event_names(0).empty());
  EXPECT_EQ(clock_event_names(0x1), std::vector<std::string>{"idle"});
  EXPECT_EQ(clock_event_names(0x4 | 0x40), (std::vector<std::string>{"SW power cap", "HW thermal slowdown"}));
  EXPECT_EQ(clock_event_names(0x1000), std::vector<std::string>{"bit 12"});  // a bit of a later driver
  EXPECT_EQ(clock_event_names(uint64_t{1} << 63), std::vector<std::string>{"bit 63"});
  EXPECT_EQ(clock_event_names(0x1FF).size(), 9u);
}

TEST(ClockEvents, OnlyHeatAndCurrentThrottle) {
  for (const uint64_t throttles : {0x8, 0x20, 0x40, 0x80}) {
    EXPECT_TRUE(is_throttled(throttles)) << throttles;
    EXPECT_TRUE(is_throttled(throttles | 0x4));
    EXPECT_FALSE(is_power_capped(throttles));
  }
  for (const uint64_t harmless : {0x0, 0x1, 0x2, 0x4, 0x10, 0x100})
    EXPECT_FALSE(is_throttled(harmless)) << harmless;
  EXPECT_TRUE(is_power_capped(0x4));
  EXPECT_FALSE(is_power_capped(0x1));
}

TEST(Nvml, AnswersOrSaysWhyNot) {
  const auto gpus = nvml_gpus();
  if (!gpus) {
    EXPECT_GT(gpus.error().message.size(), 20u);
    EXPECT_EQ(nvml_driver_version(), "");
    EXPECT_EQ(nvml_gpu("GPU-none").error().message, gpus.error().message);
    GTEST_SKIP() << gpus.error().message;
  }
  EXPECT_FALSE(nvml_driver_version().empty());
  EXPECT_FALSE(nvml_gpu("GPU-00000000-0000-0000-0000-000000000000"));
  for (const NvmlGpu& gpu : *gpus) {
    EXPECT_FALSE(gpu.name().empty());
    const auto same = nvml_gpu(gpu.uuid());
    ASSERT_TRUE(same) << same.error().message;
    EXPECT_EQ(same->name(), gpu.name());
    const GpuSensors sensors = gpu.sensors();
    EXPECT_GT(sensors.sm_clock_hz.value_or(1e9), 1e7);
    EXPECT_LT(sensors.sm_clock_hz.value_or(1e9), 1e10);
    EXPECT_LT(sensors.power_w.value_or(100), 5000);
    EXPECT_GT(gpu.memory_bytes().value_or(1 << 30), 1 << 20);
    EXPECT_GE(gpu.index().value_or(0), 0);
    if (const auto memory = gpu.memory()) {
      EXPECT_GE(memory->used_bytes, 0);
      EXPECT_GE(memory->free_bytes, 0);
      EXPECT_LE(memory->used_bytes + memory->free_bytes, memory->total_bytes);
    }
    if (const auto activity = gpu.activity())
      for (const double share : {activity->kernels, activity->memory}) {
        EXPECT_GE(share, 0);
        EXPECT_LE(share, 1);
      }
    if (const auto first = gpu.nvlink_traffic()) {  // counters that only grow
      const auto second = gpu.nvlink_traffic();
      ASSERT_TRUE(second);
      EXPECT_GE(first->sent_bytes, 0);
      EXPECT_GE(second->sent_bytes, first->sent_bytes);
      EXPECT_GE(second->received_bytes, first->received_bytes);
    }
  }
}

}  // namespace
}  // namespace fathom::machine
