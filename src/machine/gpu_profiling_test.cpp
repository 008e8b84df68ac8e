#include "machine/gpu_profiling.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "machine/gpu.h"

namespace fathom::machine {
namespace {

TEST(GpuRungs, SurviveTheRoundTrip) {
  for (const GpuRungState& state : {GpuRungState{GpuRung::nvml, {}, "1980 MHz"},
                                    GpuRungState{GpuRung::pm_sampling, "counters are forbidden", ""}}) {
    const auto back = gpu_rung_from_json(nlohmann::json::parse(to_json(state).dump()));
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(*back, state);
  }
  for (const char* text : {"7", "[]", "{}", R"({"rung": "ladder", "why_not": null, "seen": ""})"})
    EXPECT_FALSE(gpu_rung_from_json(nlohmann::json::parse(text))) << text;
}

TEST(GpuRungs, AreFoundByName) {
  for (const GpuRung rung : kGpuRungs) {
    EXPECT_EQ(gpu_rung_named(to_string(rung)), rung);
    EXPECT_FALSE(describe(rung).empty()) << to_string(rung);
  }
  EXPECT_FALSE(gpu_rung_named("ladder"));
  EXPECT_FALSE(wants_own_process(GpuRung::gpm));
  EXPECT_TRUE(wants_own_process(GpuRung::range_profiler));
}

TEST(GpuRungs, WithoutAGpuSayWhy) {
  if (gpu()) GTEST_SKIP() << "there is a GPU, and `fathom doctor` tries its rungs";
  for (const GpuRung rung : kGpuRungs)
    EXPECT_NE(probe_gpu_profiling(rung).why_not.value_or("").find(why_no_gpu()), std::string::npos)
        << to_string(rung);
}

}  // namespace
}  // namespace fathom::machine
