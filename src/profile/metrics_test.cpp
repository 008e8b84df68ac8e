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
      for (const Counter& counter : counters(set, chip)) {
        EXPECT_TRUE(names.insert(counter.name).second) << counter.name << " twice on " << chip;
        EXPECT_NE(counter.cupti.find("__"), std::string_view::npos);
      }
      EXPECT_TRUE(std::includes(names.begin(), names.end(), before.begin(), before.end())) << to_string(set);
      EXPECT_GT(names.size(), before.size());
      before = names;
    }
  }
  EXPECT_TRUE(counters(MetricSet::minimal, "TU102").empty());
  EXPECT_TRUE(counters(MetricSet::minimal, "").empty());
}

TEST(Metrics, SetsAreNamed) {
  EXPECT_EQ(*parse_metric_set("deep_dive"), MetricSet::deep_dive);
  EXPECT_NE(parse_metric_set("deep").error().message.find("minimal, roofline or deep_dive"),
            std::string::npos);
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
