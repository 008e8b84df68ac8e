#include "profile/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace fathom::profile {
namespace {

TEST(Metrics, SetsGrowOutOfEachOther) {
  for (const char* chip : {"GA100", "AD102", "GH100", "GB100"}) {
    std::set<std::string_view> before;
    for (const MetricSet set : {MetricSet::minimal, MetricSet::roofline, MetricSet::deep_dive}) {
      std::set<std::string_view> names;
      for (const Counter& counter : counters({.set = set}, chip)) {
        EXPECT_TRUE(names.insert(counter.name).second) << counter.name << " twice on " << chip;
        EXPECT_NE(counter.cupti.find("__"), std::string_view::npos);
      }
      EXPECT_TRUE(std::includes(names.begin(), names.end(), before.begin(), before.end())) << to_string(set);
      EXPECT_GT(names.size(), before.size());
      before = names;
    }
  }
  EXPECT_TRUE(counters({}, "TU102").empty());
  EXPECT_TRUE(counters({}, "").empty());
}

TEST(Metrics, SetsAreNamed) {
  EXPECT_EQ(*parse_metric_set("deep_dive"), MetricSet::deep_dive);
  EXPECT_NE(parse_metric_set("deep").error().message.find("minimal, roofline or deep_dive"),
            std::string::npos);
}

std::set<std::string_view> names(const CounterChoice& choice) {
  std::set<std::string_view> names;
  for (const Counter& counter : counters(choice, "GH100")) names.insert(counter.name);
  return names;
}

TEST(Metrics, SectionsChooseAmongTheCountersOfAllSets) {
  // Time and cycles come along, for rates; the set does not matter.
  EXPECT_EQ(names({.sections = {"SchedulerStats"}}),
            (std::set<std::string_view>{"time_ns", "cycles", "issue_active_pct", "warps_eligible"}));
  const auto both = names({.sections = {"SchedulerStats", "Occupancy"}});
  EXPECT_EQ(both.size(), 5U);
  EXPECT_TRUE(both.contains("warps_active_pct"));
  EXPECT_EQ(names({.set = MetricSet::deep_dive, .sections = {"Occupancy"}}).size(), 3U);
  // What a launch says of itself takes no counter.
  EXPECT_TRUE(names({.sections = {"LaunchStats"}}).empty());
  EXPECT_FALSE(needs_counters({.sections = {"LaunchStats"}}));
  EXPECT_TRUE(needs_counters({.sections = {"LaunchStats", "Occupancy"}}));
  EXPECT_TRUE(needs_counters({}));
  // All sections together are the largest set.
  CounterChoice all;
  for (const std::string_view section : sections()) all.sections.emplace_back(section);
  EXPECT_EQ(names(all), names({.set = MetricSet::deep_dive}));
  EXPECT_TRUE(counters({.sections = {"Occupancy"}}, "TU102").empty());
}

TEST(Metrics, SectionsHaveTheNamesOfNsightCompute) {
  EXPECT_EQ(*parse_section("WarpStateStats"), "WarpStateStats");
  EXPECT_EQ(*parse_section("MemoryWorkloadAnalysis_Chart"), "MemoryWorkloadAnalysis");
  EXPECT_EQ(*parse_section("SpeedOfLight_HierarchicalTensorRooflineChart"), "SpeedOfLight_RooflineChart");
  EXPECT_EQ(*parse_section("SpeedOfLight"), "SpeedOfLight");
  EXPECT_EQ(*parse_section("LaunchStats"), "LaunchStats");
  const std::string error = parse_section("WarpStatStats").error().message;
  EXPECT_NE(error.find("did you mean WarpStateStats?"), std::string::npos) << error;
  EXPECT_NE(error.find("SchedulerStats"), std::string::npos) << error;
  EXPECT_FALSE(parse_section(""));
  EXPECT_FALSE(parse_section("_Tables"));
}

TEST(Metrics, EveryCounterIsExplained) {
  std::set<std::string_view> said;
  for (const CounterMeaning& counter : meanings()) {
    EXPECT_TRUE(counter.meaning.ends_with('.')) << counter.name;
    EXPECT_GT(counter.meaning.size(), 15U) << counter.name;
    EXPECT_TRUE(said.insert(counter.meaning).second) << counter.name << " is explained as another one is";
    EXPECT_EQ(meaning(counter.name), counter.meaning);
    EXPECT_TRUE(parse_section(counter.section)) << counter.section;
  }
  EXPECT_GT(said.size(), 50U);
  EXPECT_TRUE(meaning("nothing of ours").empty());
}

TEST(Metrics, CountsAddAndSharesAreMeansOverTime) {
  const lab::KernelRecord a{
      .start_ns = 0, .end_ns = 300, .counters = {{"dram_bytes_read", 100}, {"l1_hit_pct", 40}}};
  const lab::KernelRecord b{.start_ns = 300,
                            .end_ns   = 400,
                            .counters = {{"dram_bytes_read", 11}, {"l1_hit_pct", 80}, {"cycles", 5}}};
  const auto both = combined_counters({&a, &b});
  EXPECT_EQ(both, (std::map<std::string, double>{{"dram_bytes_read", 111}, {"l1_hit_pct", 50}}));
  // A counter that one kernel lacks has no sum.
  EXPECT_EQ(combined_counters({&b, &a}), both);
  EXPECT_EQ(combined_counters({&b}), b.counters);
  EXPECT_TRUE(combined_counters({}).empty());
}

TEST(Metrics, KnowWhichWayIsBetter) {
  EXPECT_TRUE(higher_is_better("l2_hit_pct"));
  EXPECT_FALSE(higher_is_better("shared_bank_conflicts"));
  EXPECT_FALSE(higher_is_better("nothing of ours"));
}

}  // namespace
}  // namespace fathom::profile
