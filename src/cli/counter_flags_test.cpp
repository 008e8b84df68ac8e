#include "cli/counter_flags.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cli/usage_error.h"

namespace fathom::cli {
namespace {

CounterFlags parsed(std::vector<std::string> arguments) {
  CounterFlags flags;
  CLI::App app;
  add_counter_flags(app, flags);
  std::reverse(arguments.begin(), arguments.end());
  app.parse(arguments);
  return flags;
}

TEST(CounterFlags, ReachTheProfilerOfTheProcesses) {
  lab::RunOptions options;
  choose_counters(parsed({"--profile", "--ncu-kernel", "transpose.*<32>", "--ncu-section", "WarpStateStats",
                          "--section", "MemoryWorkloadAnalysis_Tables"}),
                  options);
  EXPECT_EQ(options.profile_set, "minimal");
  EXPECT_EQ(options.profile_kernels, "transpose.*<32>");
  EXPECT_EQ(counter_choice(options).sections,
            (std::vector<std::string>{"WarpStateStats", "MemoryWorkloadAnalysis"}));
  lab::RunOptions without;
  choose_counters(parsed({}), without);
  EXPECT_TRUE(without.profile_set.empty());
}

std::string refused(std::vector<std::string> arguments) {
  lab::RunOptions options;
  try {
    choose_counters(parsed(std::move(arguments)), options);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(CounterFlags, MistakesAreNamedBeforeAnythingRuns) {
  EXPECT_NE(refused({"--profile", "--ncu-section", "WarpStateStat"}).find("did you mean WarpStateStats?"),
            std::string::npos);
  EXPECT_NE(refused({"--profile", "--ncu-kernel", "a("}).find("'a(' is no regular expression"),
            std::string::npos);
  EXPECT_NE(refused({"--ncu-kernel", "a"}).find("add --profile"), std::string::npos);
  EXPECT_NE(refused({"--section", "LaunchStats"}).find("add --profile"), std::string::npos);
}

TEST(CounterFlags, QueryMetricsShowsWhatIsChosen) {
  const Table minimal = counter_table(parsed({"--query-metrics"}));
  const Table all     = counter_table(parsed({"--query-metrics", "--ncu-metric-set", "deep_dive"}));
  EXPECT_GT(all.rows.size(), minimal.rows.size());
  const Table stalls = counter_table(parsed({"--query-metrics", "--section", "WarpStateStats"}));
  ASSERT_FALSE(stalls.rows.empty());
  for (const auto& row : stalls.rows) {
    EXPECT_EQ(row[0], "WarpStateStats");
    EXPECT_TRUE(row[1].starts_with("stall_")) << row[1];
    EXPECT_FALSE(row[3].empty()) << row[1];
  }
}

}  // namespace
}  // namespace fathom::cli
