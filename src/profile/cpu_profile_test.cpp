#include "profile/cpu_profile.h"

#include <gtest/gtest.h>
#include <time.h>

#include <nlohmann/json.hpp>
#include <thread>

namespace fathom::profile {

// Not static and not inlined, so that the symbol table has their names. Each uses so much CPU time of its
// thread.
[[gnu::noinline]] void burn_much_of_the_test(double seconds);
[[gnu::noinline]] void burn_little_of_the_test(double seconds);

namespace {

[[gnu::always_inline]] inline void burn(double seconds) {
  const auto used = [] {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  const double until = used() + seconds;
  volatile double x  = 1;
  while (used() < until)
    for (int i = 0; i < 100'000; ++i) x = x * 0.999 + 1e-3;
}

const FunctionRow* row_of(const CpuProfile& profile, std::string_view name) {
  for (const FunctionRow& row : profile.rows)
    if (row.name.find(name) != std::string::npos) return &row;
  return nullptr;
}

TEST(CpuProfile, FindsWhereTheTimeGoes) {
  int calls                  = 0;
  const CpuActivity activity = watch_cpu(
      [&] {
        ++calls;
        burn_much_of_the_test(0.04);
        burn_little_of_the_test(0.002);
      },
      0.2);
  const CpuProfile profile = cpu_profile(activity);
  EXPECT_EQ(profile.calls, calls);
  ASSERT_GE(profile.samples, 4);  // a tick lasts 10 ms at most
  const FunctionRow* much = row_of(profile, "burn_much_of_the_test");
  ASSERT_NE(much, nullptr) << to_markdown(profile);
  EXPECT_GT(much->share, 0.5) << to_markdown(profile);
  EXPECT_EQ(much->threads, 1);
  EXPECT_EQ(&profile.rows.front(), much);
  EXPECT_NEAR(profile.cpu_ns, 0.042e9, 0.02e9);
  EXPECT_EQ(metrics_of(profile).at("cpu_time_ns").value, profile.cpu_ns);
}

TEST(CpuProfile, SeesOtherThreads) {
  const CpuActivity activity = watch_cpu(
      [] {
        std::thread other(burn_little_of_the_test, 0.1);
        burn_much_of_the_test(0.1);
        other.join();
      },
      0.1);
  std::map<int, int> threads;
  for (const CpuSample& sample : activity.samples) ++threads[sample.thread];
  EXPECT_GE(threads.size(), 2u);
  const auto json    = nlohmann::json::parse(cpu_timeline(activity, "a call").json());
  const auto& events = json.contains("traceEvents") ? json["traceEvents"] : json;
  int slices         = 0;
  for (const auto& event : events) slices += event["ph"] == "X";
  EXPECT_GE(slices, 3) << "the call, and a slice of each thread";
}

// Made-up samples: what a table and a timeline make of them is known exactly.
TEST(CpuProfile, CountsAndJoinsSamples) {
  const auto here  = reinterpret_cast<uintptr_t>(&burn_much_of_the_test) + 1;
  const auto there = reinterpret_cast<uintptr_t>(&burn_little_of_the_test) + 1;
  CpuActivity activity{
      .calls   = {{0, 40'000'000}, {40'000'000, 100'000'000}},
      .samples = {{4'000'000, 7, here}, {8'000'000, 7, here}, {12'000'000, 7, there}, {90'000'000, 8, here}},
      .cpu_s   = 0.05,
      .minor_faults = 3,
      .waits        = 8};
  const CpuProfile profile = cpu_profile(activity);
  ASSERT_EQ(profile.rows.size(), 2u);
  EXPECT_EQ(profile.rows[0].samples, 3);
  EXPECT_EQ(profile.rows[0].threads, 2);
  EXPECT_DOUBLE_EQ(profile.rows[1].share, 0.25);
  EXPECT_DOUBLE_EQ(profile.call_ns, 50e6);
  EXPECT_DOUBLE_EQ(profile.cpu_ns, 25e6);
  EXPECT_DOUBLE_EQ(profile.minor_faults, 1.5);
  EXPECT_DOUBLE_EQ(profile.waits, 4);
  EXPECT_NE(to_markdown(profile).find("| 3 | 75.0 % | 2 |"), std::string::npos) << to_markdown(profile);
  EXPECT_EQ(to_json(profile)["functions"][1]["samples"], 1);

  const auto json    = nlohmann::json::parse(cpu_timeline(activity, "a call").json());
  const auto& events = json.contains("traceEvents") ? json["traceEvents"] : json;
  std::vector<double> lengths;
  for (const auto& event : events)
    if (event["ph"] == "X" && event["args"].contains("samples"))
      lengths.push_back(event["dur"].get<double>());
  EXPECT_EQ(lengths, (std::vector<double>{8000, 0, 0})) << json.dump(1);
}

TEST(CpuProfile, NothingMeasuredIsNothing) {
  const CpuProfile profile = cpu_profile({});
  EXPECT_TRUE(profile.rows.empty());
  EXPECT_EQ(metrics_of(profile).at("cpus_busy").value, 0);
}

}  // namespace

void burn_much_of_the_test(double seconds) { burn(seconds); }
void burn_little_of_the_test(double seconds) { burn(seconds); }

}  // namespace fathom::profile
