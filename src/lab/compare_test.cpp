#include "lab/compare.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fathom::lab {
namespace {

using measure::Verdict;

Spread around(double median, double relative) {
  return {median, median * (1 - relative), median * (1 + relative)};
}

// A run of one experiment at n=64: a baseline of so many ns and a variant `ratio` times as fast.
RunRecord run_of(double baseline_ns, double ratio, double width = 0.002, double control = 1e10,
                 const char* machine = "box") {
  VariantRecord baseline{.id = "naive", .kind = "baseline", .time_ns = around(baseline_ns, width)};
  VariantRecord tiled{.id      = "tiled",
                      .kind    = "optimized",
                      .time_ns = around(baseline_ns / ratio, width),
                      .ratio   = Ratio{ratio, ratio * (1 - width), ratio * (1 + width)}};
  baseline.limit_rate = tiled.limit_rate = control;
  PointRecord point{.at = Point({{"n", int64_t{64}}}), .baseline = "naive", .variants = {baseline, tiled}};
  return {.label = "r", .machine = machine, .experiments = {{.id = "ch07/x", .points = {point}}}};
}

const ComparedVariant& tiled(const Comparison& comparison) { return comparison.variants.at(1); }
const ComparedVariant& naive(const Comparison& comparison) { return comparison.variants.at(0); }

TEST(Compare, TheSameRunIsTheSame) {
  const RunRecord run = run_of(1000, 2);
  const auto result   = compare(run, run);
  ASSERT_TRUE(result);
  ASSERT_EQ(result->variants.size(), 2u);
  EXPECT_EQ(tiled(*result).verdict, Verdict::same);
  EXPECT_TRUE(tiled(*result).by_ratio);
  EXPECT_EQ(naive(*result).verdict, Verdict::same);
  EXPECT_FALSE(naive(*result).by_ratio);
  EXPECT_FALSE(naive(*result).advisory);
  EXPECT_FALSE(result->regressed());
}

TEST(Compare, ALostRatioIsARegressionOnAnyMachine) {
  for (const char* machine : {"box", "another"}) {
    const auto result = compare(run_of(1000, 2), run_of(1000, 1.8, 0.002, 1e10, machine));
    EXPECT_EQ(tiled(*result).verdict, Verdict::slower) << machine;
    EXPECT_NEAR(tiled(*result).ratio_change->median, 0.9, 1e-12);
    EXPECT_TRUE(result->regressed()) << machine;
  }
  EXPECT_EQ(tiled(*compare(run_of(1000, 1.8), run_of(1000, 2))).verdict, Verdict::faster);
}

TEST(Compare, ASlowMachineIsNoRegression) {
  // Everything took 30 % longer, the control too: only advice.
  const auto result = compare(run_of(1000, 2), run_of(1300, 2, 0.002, 1e10 / 1.3));
  EXPECT_EQ(tiled(*result).verdict, Verdict::same);
  EXPECT_EQ(naive(*result).verdict, Verdict::slower);
  EXPECT_TRUE(naive(*result).advisory);
  EXPECT_NE(naive(*result).why.find("control moved by 30 %"), std::string::npos) << naive(*result).why;
  EXPECT_FALSE(result->regressed());

  const auto elsewhere = compare(run_of(1000, 2), run_of(1300, 2, 0.002, 1e10, "another"));
  EXPECT_NE(naive(*elsewhere).why.find("machines differ: box and another"), std::string::npos);
  EXPECT_FALSE(elsewhere->regressed());

  RunRecord no_control = run_of(1300, 2);
  no_control.experiments[0].points[0].variants[0].limit_rate.reset();
  EXPECT_TRUE(naive(*compare(run_of(1000, 2), no_control)).advisory);
}

TEST(Compare, ASlowBaselineIsARegressionWhereTheControlStoodStill) {
  const auto result = compare(run_of(1000, 2), run_of(1100, 2));
  EXPECT_EQ(naive(*result).verdict, Verdict::slower);
  EXPECT_FALSE(naive(*result).advisory);
  EXPECT_TRUE(result->regressed());
}

TEST(Compare, VerdictsNeedTheWholeIntervalBeyondTheMargin) {
  // Quotients of independent intervals: with +-1 % each, 4 % apart is within reach of 2 %.
  EXPECT_EQ(tiled(*compare(run_of(1000, 2, 0.01), run_of(1000, 2.06, 0.01))).verdict, Verdict::inconclusive);
  EXPECT_EQ(tiled(*compare(run_of(1000, 2, 0.001), run_of(1000, 2.06, 0.001))).verdict, Verdict::faster);
  EXPECT_EQ(tiled(*compare(run_of(1000, 2, 0.001), run_of(1000, 2.02, 0.001))).verdict, Verdict::same);
  EXPECT_EQ(tiled(*compare(run_of(1000, 2, 0.001), run_of(1000, 2.04, 0.001))).verdict,
            Verdict::inconclusive);
  EXPECT_EQ(tiled(*compare(run_of(1000, 2, 0.1), run_of(1000, 2, 0.1))).verdict, Verdict::inconclusive);
  EXPECT_EQ(tiled(*compare(run_of(1000, 2, 0.001), run_of(1000, 2.06, 0.001), {.margin = 0.1})).verdict,
            Verdict::same);
  const auto change = tiled(*compare(run_of(1000, 2, 0.01), run_of(1000, 2, 0.01))).ratio_change;
  EXPECT_NEAR(change->lo, 0.99 / 1.01, 1e-12);
  EXPECT_NEAR(change->hi, 1.01 / 0.99, 1e-12);
}

TEST(Compare, MirroredRunsGiveMirroredVerdicts) {
  for (const double ratio : {1.0, 1.01, 1.03, 1.5, 3.0}) {
    const auto there = tiled(*compare(run_of(1000, 1.5), run_of(1000, ratio)));
    const auto back  = tiled(*compare(run_of(1000, ratio), run_of(1000, 1.5)));
    EXPECT_EQ(there.verdict == Verdict::faster, back.verdict == Verdict::slower) << ratio;
    EXPECT_EQ(there.verdict == Verdict::same, back.verdict == Verdict::same) << ratio;
    EXPECT_NEAR(there.ratio_change->lo * back.ratio_change->hi, 1, 1e-12);
  }
}

TEST(Compare, AFailedControlMakesVerdictsAdvisory) {
  RunRecord b                   = run_of(1000, 1);
  b.experiments[0].points[0].aa = AaControl{1.01, 1.05, true};
  const auto result             = compare(run_of(1000, 2), b);
  EXPECT_EQ(tiled(*result).verdict, Verdict::slower);
  EXPECT_TRUE(tiled(*result).advisory);
  EXPECT_FALSE(tiled(*result).regressed());
}

TEST(Compare, AHotLoopIsNotAColdStart) {
  RunRecord cold                      = run_of(5000, 1);
  cold.experiments[0].points[0].cache = "cold_process";
  const auto result                   = compare(run_of(1000, 2), cold);
  EXPECT_TRUE(tiled(*result).advisory);
  EXPECT_NE(tiled(*result).why.find("cache states differ"), std::string::npos);
  EXPECT_FALSE(result->regressed());
}

TEST(Compare, WhatBrokeHasRegressedAndWhatIsSkippedHasNot) {
  RunRecord wrong = run_of(1000, 2), skipped = run_of(1000, 2);
  auto& w  = wrong.experiments[0].points[0].variants[1];
  w.status = Outcome::wrong;
  w.ratio.reset();
  w.time_ns.reset();
  auto& s  = skipped.experiments[0].points[0].variants[1];
  s.status = Outcome::skipped;
  s.ratio.reset();
  s.time_ns.reset();
  EXPECT_TRUE(compare(run_of(1000, 2), wrong)->regressed());
  EXPECT_FALSE(compare(run_of(1000, 2), skipped)->regressed());
  EXPECT_FALSE(compare(wrong, run_of(1000, 2))->regressed());
  EXPECT_FALSE(compare(wrong, wrong)->regressed());
}

TEST(Compare, RowsAreMatchedByIdAndFiltered) {
  RunRecord a = run_of(1000, 2), b = run_of(1000, 2);
  a.experiments[0].points[0].at = Point({{"n", int64_t{64}}, {"dtype", "f32"}});
  b.experiments[0].points[0].at = Point({{"dtype", "f32"}, {"n", int64_t{64}}});  // another order
  b.experiments[0].points[0].variants.push_back({.id = "new"});
  a.experiments.push_back({.id = "ch08/gone", .points = {{.at = {}, .variants = {{.id = "v"}}}}});
  const auto result = compare(a, b);
  EXPECT_EQ(result->variants.size(), 2u);
  EXPECT_EQ(result->only_a, std::vector<std::string>{"ch08/gone/v"});
  EXPECT_EQ(result->only_b, std::vector<std::string>{"ch07/x/new?dtype=f32&n=64"});

  EXPECT_EQ(compare(a, b, {.filter = "tiled"})->variants.size(), 1u);
  EXPECT_TRUE(compare(a, b, {.filter = "tiled"})->only_a.empty());
  EXPECT_FALSE(compare(a, b, {.filter = "("}));
  EXPECT_TRUE(compare(RunRecord{}, RunRecord{})->variants.empty());
}

TEST(Compare, JsonHasEveryRowAndNoInfinity) {
  RunRecord zero                                    = run_of(1000, 2);
  zero.experiments[0].points[0].variants[1].time_ns = Spread{0, 0, 0};
  const auto json                                   = to_json(*compare(run_of(1000, 2), zero));
  EXPECT_EQ(json["variants"].size(), 2u);
  EXPECT_TRUE(json["variants"][1]["time_change"].is_null());
  EXPECT_EQ(json["variants"][1]["verdict"], "SAME");
  EXPECT_EQ(json["variants"][1]["id"], "ch07/x/tiled?n=64");
}

}  // namespace
}  // namespace fathom::lab
