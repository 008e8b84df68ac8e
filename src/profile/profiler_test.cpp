#include "profile/profiler.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "profile/activity.h"
#include "profile/occupancy.h"

namespace fathom::profile {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Two kernels; the second to be launched was the first to start.
Result<Activity> two_kernels(const std::function<void()>& call) {
  call();
  const auto kernel = [](const char* name, int64_t start, int64_t end, uint32_t correlation) {
    lab::KernelRecord record{.name = name, .grid = {8, 1, 1}, .block = {256, 1, 1}, .registers = 40};
    record.start_ns    = start;
    record.end_ns      = end;
    record.correlation = correlation;
    return record;
  };
  Activity activity;
  activity.end_ns  = 1000;
  activity.kernels = {kernel("second", 100, 200, 12), kernel("first", 150, 450, 11)};
  activity.notes   = {"a note of the trace"};
  return activity;
}

Result<CounterRun> two_counted(const CounterChoice&, size_t most, const std::function<void()>& call) {
  call();
  EXPECT_EQ(most, 2U);
  CounterRun run;
  run.kernels = {{{"dram_bytes_read", 1000}, {"dram_bytes_written", 500}, {"l2_hit_pct", 10}},
                 {{"dram_bytes_read", 100}, {"dram_bytes_written", 50}, {"l2_hit_pct", 50}}};
  run.passes  = 1;
  return run;
}

Result<CounterRun> forbidden(const CounterChoice&, size_t, const std::function<void()>&) {
  return Error{"the driver keeps the GPU's counters to administrators"};
}

Result<CounterRun> one_counted(const CounterChoice&, size_t, const std::function<void()>&) {
  CounterRun run;
  run.kernels = {{{"dram_bytes_read", 1}}};
  return run;
}

const lab::Profiled kWhat{
    "ch07/transpose_gpu", "padded", lab::Point({{"n", int64_t{64}}}), {.read = 1000, .written = 500}};

TEST(Profiler, JoinsCountersToKernelsByLaunch) {
  int calls    = 0;
  auto profile = make_profiler({}, {two_kernels, two_counted})->profile(kWhat, [&] { ++calls; });
  ASSERT_TRUE(profile);
  EXPECT_EQ(calls, 2);
  ASSERT_EQ(profile->kernels.size(), 2U);
  EXPECT_EQ(profile->kernels[0].name, "second");
  EXPECT_EQ(profile->kernels[0].counters.at("dram_bytes_read"), 100);
  EXPECT_EQ(profile->kernels[1].counters.at("dram_bytes_read"), 1000);
  EXPECT_EQ(profile->metrics.at("kernels").value, 2);
  EXPECT_EQ(profile->metrics.at("kernel_time_ns").value, 400);
  EXPECT_EQ(profile->metrics.at("registers_per_thread").value, 40);
  EXPECT_EQ(profile->metrics.at("counted_dram_bytes_read").value, 1100);
  EXPECT_EQ(profile->metrics.at("counted_l2_hit_pct").value, 20);
  EXPECT_EQ(profile->metrics.at("counted_l2_hit_pct").better, "higher");
  EXPECT_DOUBLE_EQ(profile->metrics.at("counted_over_declared_bytes").value, 1.1);
  EXPECT_EQ(profile->notes, std::vector<std::string>{"a note of the trace"});
}

TEST(Profiler, WithoutCountersTheKernelsAreStillThere) {
  const auto profile = make_profiler({}, {two_kernels, forbidden})->profile(kWhat, [] {});
  ASSERT_TRUE(profile);
  EXPECT_EQ(profile->kernels.size(), 2U);
  EXPECT_EQ(profile->notes.at(1),
            "no hardware counters: the driver keeps the GPU's counters to administrators");
  EXPECT_FALSE(profile->metrics.contains("counted_dram_bytes_read"));
}

TEST(Profiler, SaysThatTwoRunsLaunchedDifferently) {
  const auto profile = make_profiler({}, {two_kernels, one_counted})->profile(kWhat, [] {});
  EXPECT_TRUE(profile->kernels[0].counters.empty());
  EXPECT_NE(profile->notes.at(1).find("2 kernels when it was traced and 1 when it was counted"),
            std::string::npos);
}

TEST(Profiler, LooksOnlyAtTheKernelsThatMatch) {
  ProfilerOptions options;
  options.kernels    = *KernelFilter::parse("regex:^sec");
  const auto profile = make_profiler(options, {two_kernels, two_counted})->profile(kWhat, [] {});
  ASSERT_EQ(profile->kernels.size(), 1U);
  EXPECT_EQ(profile->kernels[0].name, "second");
  EXPECT_EQ(profile->metrics.at("counted_dram_bytes_read").value, 100);
  // Of the whole call: else the GPU would seem idle.
  EXPECT_EQ(profile->metrics.at("kernels").value, 2);
  EXPECT_EQ(profile->metrics.at("kernel_time_ns").value, 400);
  EXPECT_FALSE(profile->metrics.contains("counted_over_declared_bytes"));
  EXPECT_EQ(profile->notes.at(1), "1 of 2 kernels match '^sec'; left out: first");
}

TEST(Profiler, CountsNothingWhereNoKernelMatchesOrNoCounterIsChosen) {
  const auto never = [](const CounterChoice&, size_t, const std::function<void()>&) -> Result<CounterRun> {
    ADD_FAILURE() << "counted";
    return Error{""};
  };
  ProfilerOptions none;
  none.kernels       = *KernelFilter::parse("third");
  const auto profile = make_profiler(none, {two_kernels, never})->profile(kWhat, [] {});
  EXPECT_TRUE(profile->kernels.empty());
  EXPECT_EQ(profile->notes.at(1), "0 of 2 kernels match 'third'; left out: first, second");
  ProfilerOptions launches;
  launches.counted.sections = {"LaunchStats"};
  const auto stats          = make_profiler(launches, {two_kernels, never})->profile(kWhat, [] {});
  EXPECT_EQ(stats->kernels.size(), 2U);
  EXPECT_EQ(stats->metrics.at("grid_size").value, 8);
  EXPECT_EQ(stats->metrics.at("block_size").value, 256);
}

// 8 blocks of 256 threads with 40 registers: six at once on each of 132 multiprocessors.
TEST(Profiler, CountsTheWavesOfTheLongestKernel) {
  const auto on_an_h100 = [](const std::function<void()>& call) {
    auto activity = two_kernels(call);
    for (lab::KernelRecord& kernel : activity->kernels) add_occupancy(kernel, 90);
    activity->gpus[0] = {"H100", 90, 132};
    return activity;
  };
  const auto profile = make_profiler({.counters = false}, {on_an_h100, forbidden})->profile(kWhat, [] {});
  EXPECT_DOUBLE_EQ(profile->metrics.at("waves_per_multiprocessor").value, 8.0 / (6 * 132));
}

TEST(Profiler, SaysHowLongTheGpuCopies) {
  const auto with_a_copy = [](const std::function<void()>& call) {
    auto activity = two_kernels(call);
    activity->copies.push_back({.name = "set", .bytes = 8, .start_ns = 500, .end_ns = 600});
    return activity;
  };
  const auto profile = make_profiler({.counters = false}, {with_a_copy, forbidden})->profile(kWhat, [] {});
  EXPECT_EQ(profile->metrics.at("copy_time_ns").value, 100);
}

TEST(Profiler, CountsOnlyWhenAsked) {
  int calls = 0;
  const auto profile =
      make_profiler({.counters = false}, {two_kernels, forbidden})->profile(kWhat, [&] { ++calls; });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(profile->notes.size(), 1U);
}

TEST(Profiler, WritesItsFilesBesideTheVariant) {
  const fs::path folder = fs::temp_directory_path() / ("fathom_profiler_test_" + std::to_string(getpid()));
  ASSERT_TRUE(make_profiler({.folder = folder.string()}, {two_kernels, two_counted})->profile(kWhat, [] {}));
  const fs::path variant = folder / "ch07/transpose_gpu/padded";
  const auto contents    = [&](const char* name) {
    std::ifstream file(variant / name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  };
  EXPECT_FALSE(json::parse(contents("trace_n=64.json")).at("traceEvents").empty());
  const json kernels = json::parse(contents("kernels_n=64.json"));
  EXPECT_EQ(kernels.at("id"), "ch07/transpose_gpu/padded?n=64");
  EXPECT_EQ(kernels.at("kernels").at(0).at("name"), "first");
  EXPECT_EQ(kernels.at("notes").at(0), "a note of the trace");
  const std::string page = contents("kernels_n=64.md");
  EXPECT_NE(page.find("| `first`"), std::string::npos);
  // The counters of the longest kernel first, each with its meaning.
  EXPECT_NE(page.find("| dram_bytes_written | 500 | 50 | Bytes written to DRAM. |"), std::string::npos)
      << page;
  EXPECT_EQ(json::parse(contents("api_n=64.json")).at("schema"), "fathom.api_summary/1");
  EXPECT_NE(contents("api_n=64.md").find("| `second`"), std::string::npos);
  fs::remove_all(folder);
}

TEST(Profiler, PassesOnWhatTheCallThrows) {
  const auto profiler = make_profiler({}, {two_kernels, two_counted});
  EXPECT_THROW((void)profiler->profile(kWhat, [] { throw std::runtime_error("the kernel failed"); }),
               std::runtime_error);
}

// On any machine: a profile or a reason, and no crash.
TEST(Profiler, SaysWhyItSeesNothing) {
  const auto profile = make_profiler({})->profile(kWhat, [] {});
  if (!profile) {
    EXPECT_FALSE(profile.error().message.empty());
  }
}

TEST(Profiler, FileNamesAreNames) {
  EXPECT_EQ(profile_file_name("trace", lab::Point(), "json"), "trace.json");
  const lab::Point at({{"n", int64_t{64}}, {"mesh", std::string("tp2/ep2")}});
  EXPECT_EQ(profile_file_name("kernels", at, "md"), "kernels_n=64,mesh=tp2_ep2.md");
}

}  // namespace
}  // namespace fathom::profile
