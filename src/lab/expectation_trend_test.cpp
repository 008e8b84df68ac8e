#include "lab/expectation_trend.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fathom::lab {
namespace {

RunRecord run_with(const std::string& started, double time_ns, double tpot_ns, double hits,
                   Outcome status = Outcome::ok) {
  VariantRecord variant{.id      = "by_cost",
                        .status  = status,
                        .time_ns = Spread{time_ns, time_ns, time_ns},
                        .metrics = {{"tpot_p50_ns", {tpot_ns, "lower"}}, {"hit_rate", {hits, "higher"}}}};
  return {.started     = started,
          .machine     = "box",
          .experiments = {{.id          = "ch17/routing",
                           .source_hash = "aaaa",
                           .points      = {{.at       = Point({{"shots", int64_t{8}}, {"requests", int64_t{64}}}),
                                            .variants = {variant}}}}}};
}

const Trend& trend(const Trends& trends, const std::string& metric) {
  for (const Trend& each : trends.all)
    if (each.metric == metric) return each;
  ADD_FAILURE() << "no trend of " << metric;
  static const Trend none;
  return none;
}

// The same point with its parameters in the other order, as a file holds them.
Expectation record(std::string hash = "aaaa") {
  RunRecord run                   = run_with("2026-01-01T00:00:00Z", 100, 10, 0.5);
  run.experiments[0].source_hash  = std::move(hash);
  run.experiments[0].points[0].at = Point({{"requests", int64_t{64}}, {"shots", int64_t{8}}});
  return {.path = "x", .experiment = "ch17/routing", .provenance = {}, .record = run};
}

const std::vector<RunRecord> kRuns = {run_with("1", 99, 10.1, 0.5), run_with("2", 104, 11, 0.4),
                                      run_with("3", 106, 12, 0.7)};

TEST(Trends, HaveAValueForEachRunBesideWhatWasExpected) {
  const auto trends = trends_of(kRuns, {record()});
  ASSERT_TRUE(trends.has_value());
  EXPECT_EQ(trends->started, (std::vector<std::string>{"1", "2", "3"}));
  ASSERT_EQ(trends->all.size(), 3u);
  const Trend& tpot = trend(*trends, "tpot_p50_ns");
  EXPECT_EQ(tpot.result, "ch17/routing/by_cost?requests=64&shots=8");
  EXPECT_EQ(tpot.values, (std::vector<std::optional<double>>{10.1, 11, 12}));
  EXPECT_EQ(tpot.expected, 10);
  EXPECT_EQ(tpot.worse(0.02), 2) << "10.1 is within 2 % of 10";
  EXPECT_EQ(tpot.median(), 11);
  EXPECT_NEAR(*tpot.spread(), 1.9 / 11, 1e-12);
  EXPECT_NEAR(*tpot.change(), 0.2, 1e-12);
  EXPECT_FALSE(tpot.stale);
  EXPECT_EQ(trend(*trends, "hit_rate").worse(0.02), 1) << "higher is better: only 0.4 is worse than 0.5";
  EXPECT_EQ(trend(*trends, "time_ns").worse(0.02), 2);
}

TEST(Trends, AChangedSourceMakesARecordStale) {
  const auto trends = trends_of(kRuns, {record("bbbb")});
  EXPECT_TRUE(trend(*trends, "time_ns").stale);
}

TEST(Trends, WhatARunLacksIsAbsent) {
  std::vector<RunRecord> runs            = {run_with("1", 99, 10, 0.5),
                                            run_with("2", 5, 5, 0.9, Outcome::wrong),  // a wrong answer has no time
                                            run_with("3", 98, 10, 0.5), run_with("4", 1, 1, 0.9)};
  runs[3].experiments[0].points[0].cache = "cold_process";  // another quantity
  const auto trends                      = trends_of(runs, {});
  const Trend& time                      = trend(*trends, "time_ns");
  EXPECT_EQ(time.values, (std::vector<std::optional<double>>{99, std::nullopt, 98, std::nullopt}));
  EXPECT_EQ(time.runs(), 2);
  EXPECT_EQ(time.newest(), 98);
  EXPECT_EQ(time.expected, std::nullopt);
  EXPECT_EQ(time.change(), std::nullopt);
  EXPECT_EQ(time.worse(0.02), 0);
  const nlohmann::json json = to_json(*trends, 0.02);
  EXPECT_EQ(json["schema"], "fathom.trends/1");
  EXPECT_TRUE(json["trends"][1]["values"][1].is_null());
}

TEST(Trends, AreFilteredByResultAndMetric) {
  EXPECT_EQ(trends_of(kRuns, {}, "routing.* (tpot|hit)")->all.size(), 2u);
  EXPECT_EQ(trends_of(kRuns, {}, "nothing")->all.size(), 0u);
  EXPECT_FALSE(trends_of(kRuns, {}, "(").has_value());
  EXPECT_EQ(trends_of({}, {record()})->all.size(), 0u);
}

}  // namespace
}  // namespace fathom::lab
