#include "report/highlights.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fathom::report {

using namespace lab;

namespace {

VariantRecord variant(const std::string& id, const std::string& kind, double ratio,
                      const std::string& verdict) {
  VariantRecord v;
  v.id   = id;
  v.kind = kind;
  if (ratio > 0) {
    v.ratio   = Ratio{ratio, ratio * 0.99, ratio * 1.01};
    v.verdict = verdict;
  }
  return v;
}

PointRecord point(int64_t n, std::vector<VariantRecord> variants) {
  PointRecord p;
  p.at       = Point({{"n", n}});
  p.baseline = "base";
  p.variants = {variant("base", "baseline", 0, "")};
  p.variants.insert(p.variants.end(), variants.begin(), variants.end());
  return p;
}

ExperimentRecord experiment(const std::string& id, std::vector<PointRecord> points) {
  ExperimentRecord e;
  e.id     = id;
  e.points = std::move(points);
  return e;
}

TEST(Best, IsTheFastestValidVariantOfOurs) {
  PointRecord p =
      point(1, {variant("a", "optimized", 2, "FASTER"), variant("b", "optimized", 3, "FASTER"),
                variant("lib", "library", 9, "FASTER"), variant("cheat", "optimized", 40, "INVALID")});
  VariantRecord wrong = variant("wrong", "optimized", 5, "FASTER");
  wrong.status        = Outcome::wrong;
  p.variants.push_back(wrong);
  ASSERT_NE(best_of(p), nullptr);
  EXPECT_EQ(best_of(p)->id, "b");
  p.variants.push_back(variant("op", "engine", 4, "FASTER"));
  EXPECT_EQ(best_of(p)->id, "op") << "the engine's op is ours";
  EXPECT_EQ(baseline_of(p)->id, "base");
}

TEST(Best, IsAbsentAndExplainedWhenNothingIsValid) {
  VariantRecord skipped = variant("simd", "optimized", 0, "");
  skipped.status        = Outcome::skipped;
  skipped.skip          = Skip{"needs_feature", "avx2"};
  VariantRecord wrong   = variant("quick", "optimized", 0, "");
  wrong.status          = Outcome::wrong;
  PointRecord p         = point(1, {skipped, wrong, variant("cheat", "optimized", 40, "INVALID")});
  EXPECT_EQ(best_of(p), nullptr);
  EXPECT_EQ(why_no_best({}, &p),
            "simd: skipped: needs_feature, avx2; quick: wrong output; cheat: invalid measurement");
  p.variants.front().status = Outcome::crashed;
  EXPECT_EQ(why_no_best({}, &p), "baseline base: crashed");
}

TEST(Headline, IsTheFirstPointWithABestVariant) {
  ExperimentRecord e = experiment("x", {point(4, {variant("a", "optimized", 40, "INVALID")}),
                                        point(2, {variant("a", "optimized", 3, "FASTER")}),
                                        point(1, {variant("a", "optimized", 2, "FASTER")})});
  EXPECT_EQ(headline_point(e), &e.points[1]);
  e.points.resize(1);
  EXPECT_EQ(headline_point(e), &e.points[0]);
  EXPECT_EQ(headline_point(experiment("y", {})), nullptr);
}

TEST(WasSkipped, MeansEveryVariantAtEveryPoint) {
  VariantRecord skipped = variant("a", "optimized", 0, "");
  skipped.status        = Outcome::skipped;
  PointRecord p         = point(1, {skipped});
  EXPECT_FALSE(was_skipped(experiment("x", {p}))) << "its baseline ran";
  p.variants[0].status = Outcome::skipped;
  EXPECT_TRUE(was_skipped(experiment("x", {p, p})));
  EXPECT_FALSE(was_skipped(experiment("x", {})));
}

TEST(AboveLimit, StartsBeyondTheMargin) {
  VariantRecord v = variant("a", "optimized", 2, "FASTER");
  EXPECT_FALSE(is_above_limit(v));
  v.share_of_limit = 1.01;
  EXPECT_FALSE(is_above_limit(v));
  v.share_of_limit = 1.03;
  EXPECT_TRUE(is_above_limit(v));
  v.status = Outcome::wrong;
  EXPECT_FALSE(is_above_limit(v));
}

TEST(Tally, CountsEveryVariantAtEveryPointOnce) {
  RunRecord run;
  PointRecord p =
      point(1, {variant("a", "optimized", 2, "FASTER"), variant("b", "optimized", 0.5, "SLOWER"),
                variant("c", "optimized", 1, "SAME"), variant("d", "library", 1.02, "INCONCLUSIVE"),
                variant("e", "optimized", 9, "INVALID")});
  p.variants[1].prediction = PredictionScore{"ratio 2", true};
  p.variants[2].prediction = PredictionScore{"ratio 2", false};
  p.variants[3].prediction = PredictionScore{"", std::nullopt};
  PointRecord loud         = p;
  loud.aa                  = AaControl{1.01, 1.05, true};
  loud.variants[4].status  = Outcome::timeout;
  run.experiments          = {experiment("x", {p, loud})};
  ExperimentRecord skipped = experiment("y", {});
  skipped.status           = Outcome::skipped;
  run.experiments.push_back(skipped);
  const Tally t = tally_of(run);
  EXPECT_EQ(t.experiments, 2);
  EXPECT_EQ(t.points, 2);
  EXPECT_EQ(t.faster, 2);
  EXPECT_EQ(t.slower, 2);
  EXPECT_EQ(t.same, 2);
  EXPECT_EQ(t.inconclusive, 1) << "the one that timed out has no verdict";
  EXPECT_EQ(t.advisory, 3) << "an invalid time is not advisory";
  EXPECT_EQ(t.invalid, 2);
  EXPECT_EQ(t.skipped, 1);
  EXPECT_EQ(t.failed, 1);
  EXPECT_EQ(t.predictions_held, 2);
  EXPECT_EQ(t.predictions_failed, 2);
}

TEST(GeometricMean, WeighsExperimentsEquallyAndNamesWhatItLeavesOut) {
  RunRecord run;
  // Points 2 and 8 make 4; with 1 of the other experiment the mean is 2.
  run.experiments          = {experiment("x", {point(1, {variant("a", "optimized", 2, "FASTER")}),
                                               point(2, {variant("a", "optimized", 8, "FASTER")}),
                                               point(3, {variant("a", "optimized", 90, "INVALID")})}),
                              experiment("y", {point(1, {variant("a", "optimized", 1, "SAME")})})};
  ExperimentRecord skipped = experiment("z", {});
  skipped.status           = Outcome::skipped;
  skipped.skip             = Skip{"needs_cuda", ""};
  run.experiments.push_back(skipped);
  const Aggregate mean = geometric_mean_of(run);
  ASSERT_TRUE(mean.mean);
  EXPECT_NEAR(*mean.mean, 2, 1e-12);
  EXPECT_EQ(mean.experiments, 2);
  ASSERT_EQ(mean.excluded.size(), 2u);
  EXPECT_EQ(mean.excluded[0].id, "x?n=3");
  EXPECT_EQ(mean.excluded[0].reason, "a: invalid measurement");
  EXPECT_EQ(mean.excluded[1].id, "z");
  EXPECT_EQ(mean.excluded[1].reason, "skipped: needs_cuda");
  EXPECT_FALSE(geometric_mean_of({}).mean);
}

}  // namespace
}  // namespace fathom::report
