#include "profile/timeline.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

namespace fathom::profile {
namespace {

using nlohmann::json;

constexpr int64_t kTraceBase = 1'764'000'000'000'000'000;  // some day in 2025

// Two launches, the second waiting for the first, and a copy on another stream.
Activity two_kernels_and_a_copy() {
  const auto kernel = [](const char* name, int64_t start, int64_t end, uint32_t correlation) {
    lab::KernelRecord record{.name = name, .grid = {132, 1, 1}, .block = {256, 1, 1}, .registers = 32};
    record.start_ns    = kTraceBase + start;
    record.end_ns      = kTraceBase + end;
    record.stream      = 7;
    record.correlation = correlation;
    return record;
  };
  Activity activity;
  activity.start_ns   = kTraceBase;
  activity.end_ns     = kTraceBase + 60'000;
  activity.kernels    = {kernel("first", 10'000, 20'000, 11), kernel("second", 20'000, 45'000, 12)};
  activity.copies     = {{"copy host to device", 4096, kTraceBase + 15'000, kTraceBase + 16'000, 0, 14, 13}};
  activity.host_calls = {{"cudaLaunchKernel", false, kTraceBase + 1'000, kTraceBase + 4'000, 42, 11},
                         {"cuLaunchKernel", true, kTraceBase + 2'000, kTraceBase + 3'000, 42, 11},
                         {"cudaLaunchKernel", false, kTraceBase + 5'000, kTraceBase + 6'000, 42, 12},
                         {"cuMemcpyHtoDAsync_v2", true, kTraceBase + 7'000, kTraceBase + 8'000, 43, 13},
                         {"cudaDeviceSynchronize", false, kTraceBase + 9'000, kTraceBase + 50'000, 42, 14}};
  activity.gpus[0]    = {"NVIDIA H200", 90};
  return activity;
}

TEST(Timeline, DrawsHostAboveGpuByStream) {
  const json read = json::parse(timeline(two_kernels_and_a_copy(), "ch07/x/padded n=1").json());
  std::map<int, std::string> processes, threads;
  std::map<std::string, json> slices;
  for (const json& event : read.at("traceEvents")) {
    if (event.at("name") == "process_name") processes[event.at("pid")] = event.at("args").at("name");
    if (event.at("name") == "thread_name") threads[event.at("tid")] = event.at("args").at("name");
    if (event.at("ph") == "X") slices[event.at("name")] = event;
  }
  EXPECT_EQ(processes, (std::map<int, std::string>{{1, "host"}, {2, "GPU 0: NVIDIA H200"}}));
  EXPECT_EQ(threads,
            (std::map<int, std::string>{
                {1, "call"}, {2, "thread 42"}, {3, "thread 43"}, {4, "stream 7"}, {5, "stream 14"}}));
  EXPECT_EQ(slices.at("ch07/x/padded n=1").at("dur"), 60.0);
  EXPECT_EQ(slices.at("second").at("ts"), 20.0);
  EXPECT_EQ(slices.at("second").at("dur"), 25.0);
  EXPECT_EQ(slices.at("second").at("args").at("block"), "256x1x1");
  EXPECT_EQ(slices.at("copy host to device").at("args").at("bytes"), 4096);
  EXPECT_FALSE(slices.contains("cuLaunchKernel"));
}

TEST(Timeline, JoinsEachLaunchToWhatItLaunched) {
  const json read = json::parse(timeline(two_kernels_and_a_copy(), "call").json());
  std::map<int, std::pair<double, double>> flows;  // id: from, to
  for (const json& event : read.at("traceEvents")) {
    if (event.at("ph") == "s") flows[event.at("id")].first = event.at("ts");
    if (event.at("ph") == "f") flows[event.at("id")].second = event.at("ts");
  }
  std::vector<std::pair<double, double>> arrows;
  for (const auto& [id, flow] : flows) arrows.push_back(flow);
  EXPECT_EQ(arrows, (std::vector<std::pair<double, double>>{{1, 10}, {5, 20}, {7, 15}}));
}

TEST(Timeline, DrawsRangesAboveTheirThread) {
  Activity activity = two_kernels_and_a_copy();
  activity.ranges   = {{"step", kTraceBase + 500, kTraceBase + 55'000, 42},
                       {"decode", kTraceBase + 900, kTraceBase + 7'000, 42}};
  const json read   = json::parse(timeline(activity, "call").json());
  std::map<int, std::string> threads;
  std::map<std::string, std::string> track_of;
  for (const json& event : read.at("traceEvents"))
    if (event.at("name") == "thread_name") threads[event.at("tid")] = event.at("args").at("name");
  for (const json& event : read.at("traceEvents"))
    if (event.at("ph") == "X") track_of[event.at("name")] = threads.at(event.at("tid"));
  EXPECT_EQ(track_of.at("step"), "ranges of thread 42");
  EXPECT_EQ(track_of.at("decode"), "ranges of thread 42") << "inside the step, so on the same track";
  EXPECT_EQ(track_of.at("cudaDeviceSynchronize"), "thread 42");
}

TEST(Timeline, LeavesOutWhatHasNoTimes) {
  Activity activity            = two_kernels_and_a_copy();
  activity.kernels[0].start_ns = activity.kernels[0].end_ns = 0;
  const std::string text                                    = timeline(activity, "call").json();
  EXPECT_EQ(text.find("\"first\""), std::string::npos);
  EXPECT_NE(text.find("\"second\""), std::string::npos);
}

TEST(Timeline, OfNothingHasTheCall) {
  const json read = json::parse(timeline(Activity{}, "idle").json());
  EXPECT_EQ(read.at("traceEvents").back().at("name"), "idle");
}

std::vector<std::string> names(const std::vector<HostCall>& calls) {
  std::vector<std::string> names;
  for (const HostCall& call : calls) names.push_back(call.name);
  return names;
}

TEST(Timeline, DriverCallsStayWhereTheySayMore) {
  const std::vector<HostCall> calls = {
      {"cudaMemcpy", false, 100, 200, 1, 5}, {"cuMemcpy", true, 120, 180, 1, 5},
      {"cuOther", true, 130, 170, 2, 6},     {"cuInit", true, 300, 400, 1, 7},
      {"cuHidden", true, 150, 160, 1, 8},    {"cuAcross", true, 190, 210, 1, 9}};
  EXPECT_EQ(names(without_inner_driver_calls(calls, {5})),
            (std::vector<std::string>{"cudaMemcpy", "cuOther", "cuInit", "cuAcross"}));
  // Only the driver's record knows launch 8.
  EXPECT_EQ(names(without_inner_driver_calls(calls, {5, 8})),
            (std::vector<std::string>{"cudaMemcpy", "cuOther", "cuInit", "cuHidden", "cuAcross"}));
  EXPECT_TRUE(without_inner_driver_calls({}, {}).empty());
}

}  // namespace
}  // namespace fathom::profile
