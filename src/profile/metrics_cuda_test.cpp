// Checks every counter name with CUPTI, for every chip of the table. Needs the toolkit's libraries but no
// GPU.
#include <gtest/gtest.h>

#include "machine/counter_config.h"
#include "profile/metrics.h"

namespace fathom::profile {
namespace {

using machine::CounterConfig;

Result<CounterConfig> configure(const Cupti& cupti, const std::string& chip, MetricSet set) {
  std::vector<std::string> names;
  for (const Counter& counter : counters({.set = set}, chip)) names.emplace_back(counter.cupti);
  return CounterConfig::create(cupti, chip, names);
}

class MetricsCuda : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto cupti = Cupti::open();
    if (!cupti) GTEST_SKIP() << cupti.error().message;
    cupti_ = *cupti;
  }
  const Cupti* cupti_ = nullptr;
};

TEST_P(MetricsCuda, KnowsEveryNameAndKeepsItsPasses) {
  const std::pair<MetricSet, int> most_passes[] = {
      {MetricSet::minimal, 1}, {MetricSet::roofline, 2}, {MetricSet::deep_dive, 21}};
  for (const auto& [set, most] : most_passes) {
    const auto config = configure(*cupti_, GetParam(), set);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_LE(config->passes(), most) << to_string(set);
    RecordProperty(std::string(to_string(set)), config->passes());
  }
}

INSTANTIATE_TEST_SUITE_P(Chips, MetricsCuda,
                         testing::Values("GA100", "AD102", "AD103", "AD104", "AD106", "AD107", "GH100",
                                         "GB100", "GB102"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(MetricsCuda, KnowsEachSectionByItself) {
  for (const std::string_view section : sections()) {
    const CounterChoice choice{.sections = {std::string(section)}};
    std::vector<std::string> names;
    for (const Counter& counter : counters(choice, GetParam())) names.emplace_back(counter.cupti);
    EXPECT_EQ(names.empty(), !needs_counters(choice)) << section;
    if (names.empty()) continue;
    const auto config = CounterConfig::create(*cupti_, GetParam(), names);
    ASSERT_TRUE(config) << section << ": " << config.error().message;
  }
}

TEST_P(MetricsCuda, NamesWhatAChipDoesNotCount) {
  const auto config = CounterConfig::create(
      *cupti_, GetParam(), {"gpu__time_duration.sum", "dram__bytes_imagined.sum", "sm__cycles_elapsed.max"});
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().message, std::string(GetParam()) + " does not count dram__bytes_imagined.sum");
}

TEST_F(MetricsCuda, HopperNeedsOnePassForMinimalAndTwoForTheRoofline) {
  EXPECT_EQ(configure(*cupti_, "GH100", MetricSet::minimal)->passes(), 1);
  EXPECT_EQ(configure(*cupti_, "GH100", MetricSet::roofline)->passes(), 2);
}

TEST_F(MetricsCuda, SaysThatAChipIsUnknown) {
  const auto config = CounterConfig::create(*cupti_, "XY999", {"gpu__time_duration.sum"});
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().message.find("XY999"), std::string::npos) << config.error().message;
}

}  // namespace
}  // namespace fathom::profile
