// The profiler on a GPU: records and counts the kernels of Device::fill_uniform. Skipped without a GPU.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "core/expect.h"
#include "cuda/device.h"
#include "cuda/graph.h"
#include "machine/gpu_ceiling_kernels.h"
#include "profile/activity.h"
#include "profile/kernel_counters.h"
#include "profile/profiler.h"

namespace fathom::profile {
namespace {

constexpr int64_t kFloats = int64_t{64} << 20;  // 256 MiB: larger than any L2
constexpr int64_t kBytes  = kFloats * 4;

class ProfilerCuda : public testing::Test {
 protected:
  void SetUp() override {
    device_ = find_device({0});
    if (!device_) GTEST_SKIP() << why_no_device({0});
    memory_ = device_->allocate(kBytes);
    sink_   = device_->allocate(64);
    fill();  // loads the kernel and makes the context
  }
  void TearDown() override {
    if (!device_) return;
    device_->release(memory_);
    device_->release(sink_);
  }
  void fill() { device_->fill_uniform(memory_, kFloats, DType::fp32, 1, -1, 1); }

  Device* device_ = nullptr;
  void* memory_   = nullptr;
  void* sink_     = nullptr;
};

TEST_F(ProfilerCuda, SeesKernelsAndTheirLaunches) {
  const auto activity = watch_activity([&] { fill(); });
  if (!activity) GTEST_SKIP() << activity.error().message;
  for (const std::string& note : activity->notes) ADD_FAILURE() << note;
  ASSERT_FALSE(activity->kernels.empty());
  const lab::KernelRecord& kernel = *std::max_element(
      activity->kernels.begin(), activity->kernels.end(),
      [](const auto& a, const auto& b) { return a.end_ns - a.start_ns < b.end_ns - b.start_ns; });
  EXPECT_EQ(kernel.name.find("_Z"), std::string::npos) << kernel.name;
  EXPECT_GT(kernel.blocks(), 0);
  EXPECT_GE(kernel.threads(), 32);
  EXPECT_GT(kernel.registers, 0);
  EXPECT_GT(kernel.end_ns - kernel.start_ns, 10'000);       // 256 MiB at 25 TB/s
  EXPECT_LT(kernel.end_ns - kernel.start_ns, 100'000'000);  // at 2.7 GB/s
  EXPECT_GT(kernel.start_ns, activity->start_ns - 1'000'000);
  EXPECT_LT(kernel.end_ns, activity->end_ns + 1'000'000);
  const Gpu& gpu = activity->gpus.at(kernel.device);
  EXPECT_FALSE(gpu.name.empty());
  EXPECT_GE(gpu.compute_capability, 75);
  EXPECT_TRUE(
      std::any_of(activity->host_calls.begin(), activity->host_calls.end(), [&](const HostCall& call) {
        return call.correlation == kernel.correlation && call.name.find("Launch") != std::string::npos;
      }));
}

TEST_F(ProfilerCuda, SeesNothingOfWhatCameBeforeOrAfter) {
  fill();
  const auto idle = watch_activity([] {});
  if (!idle) GTEST_SKIP() << idle.error().message;
  EXPECT_TRUE(idle->kernels.empty());
  EXPECT_FALSE(idle->notes.empty());
  fill();
  const auto one = watch_activity([&] { fill(); }), again = watch_activity([&] {
                                                      fill();
                                                      fill();
                                                    });
  ASSERT_TRUE(one && again);
  EXPECT_EQ(2 * one->kernels.size(), again->kernels.size());
}

TEST_F(ProfilerCuda, SeesEachKernelOfAGraphThatWasMadeWhileItWatched) {
  const auto watch = ActivityWatch::open();
  if (!watch) GTEST_SKIP() << watch.error().message;
  const StreamRef stream = device_->stream();
  // Not a fill: it synchronises, which a capture does not allow.
  const auto read       = [&] { machine::gpu_kernels()->read(memory_, kBytes, sink_, stream); };
  const Activity direct = (*watch)->watch(read);
  const CudaGraph graph(stream, [&] { read(), read(); });
  const Activity replayed = (*watch)->watch([&] { graph.launch(stream), graph.launch(stream); });
  ASSERT_FALSE(direct.kernels.empty());
  ASSERT_EQ(replayed.kernels.size(), 4 * direct.kernels.size());
  for (const lab::KernelRecord& kernel : replayed.kernels) {
    EXPECT_EQ(kernel.name, direct.kernels.front().name);
    EXPECT_GT(kernel.end_ns - kernel.start_ns, 10'000);
  }
}

TEST_F(ProfilerCuda, CountsTheBytesThatAFillWrites) {
  const auto activity = watch_activity([&] { fill(); });
  if (!activity) GTEST_SKIP() << activity.error().message;
  for (const MetricSet set : {MetricSet::minimal, MetricSet::roofline, MetricSet::deep_dive}) {
    const auto run = count_kernels({.set = set}, activity->kernels.size(), [&] { fill(); });
    if (!run) GTEST_SKIP() << run.error().message;
    for (const std::string& note : run->notes) ADD_FAILURE() << to_string(set) << ": " << note;
    ASSERT_EQ(run->kernels.size(), activity->kernels.size()) << to_string(set);
    double written = 0, read = 0;
    for (const KernelCounters& kernel : run->kernels) {
      written += kernel.at("dram_bytes_written");
      read += kernel.at("dram_bytes_read");
      EXPECT_GT(kernel.at("time_ns"), 0);
      if (set != MetricSet::minimal) {
        EXPECT_GT(kernel.at("l2_bytes"), 0);
      }
    }
    // The last writes may still be in L2 when the kernel ends.
    EXPECT_GT(written, 0.5 * kBytes) << to_string(set);
    EXPECT_LT(written, 1.2 * kBytes) << to_string(set);
    EXPECT_LT(read, 0.2 * kBytes) << to_string(set);
  }
}

TEST_F(ProfilerCuda, SurvivesACallThatThrows) {
  EXPECT_THROW((void)watch_activity([] { throw ContractError("the call"); }), ContractError);
  const auto after = watch_activity([&] { fill(); });
  if (!after) GTEST_SKIP() << after.error().message;
  EXPECT_FALSE(after->kernels.empty());
}

TEST_F(ProfilerCuda, RefusesWhereAnotherToolIsInjected) {
  setenv("CUDA_INJECTION64_PATH", "/opt/another/libtool.so", 1);
  const auto activity = watch_activity([] {});
  const auto run      = count_kernels({}, 1, [] {});
  unsetenv("CUDA_INJECTION64_PATH");
  ASSERT_FALSE(activity);
  EXPECT_NE(activity.error().message.find("/opt/another/libtool.so"), std::string::npos);
  EXPECT_FALSE(run);
}

}  // namespace
}  // namespace fathom::profile
