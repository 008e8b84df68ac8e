#include "report/lessons.h"

#include <gtest/gtest.h>

#include <set>

#include "report/overview_chart.h"
#include "report/report_fixture.h"

namespace fathom::report {

using namespace lab;

namespace {

VariantRecord timed(const std::string& id, const std::string& kind, double ratio, const std::string& verdict,
                    double share = 0) {
  VariantRecord v;
  v.id      = id;
  v.kind    = kind;
  v.time_ns = Spread{1e6 / std::max(ratio, 0.1), 0, 0};
  if (ratio > 0) v.ratio = Ratio{ratio, ratio * 0.99, ratio * 1.01};
  if (ratio > 0) v.verdict = verdict;
  if (share > 0) v.share_of_limit = share;
  return v;
}

ExperimentRecord with(const std::string& id, std::vector<VariantRecord> variants) {
  PointRecord p;
  p.baseline = "base";
  p.variants = {timed("base", "baseline", 0, "", 0.1)};
  p.variants.insert(p.variants.end(), variants.begin(), variants.end());
  ExperimentRecord e;
  e.id     = id;
  e.points = {p};
  return e;
}

std::vector<std::string> told(const RunRecord& run) {
  std::vector<std::string> out;
  for (const Lesson& lesson : lessons_of(run))
    out.push_back(lesson.kind + " | " + run.experiments[lesson.experiment].id + " | " + lesson.sentence);
  return out;
}

TEST(Lessons, AreOneOfEachKindAndOfDifferentExperiments) {
  RunRecord run;
  VariantRecord missed = timed("hoped", "optimized", 1.1, "FASTER", 0.3);
  missed.prediction    = PredictionScore{"share >= 0.9", false};
  run.experiments      = {
           with("ch01/gain", {timed("quick", "optimized", 40, "FASTER", 0.5)}),
           with("ch02/limit", {timed("close", "optimized", 3, "FASTER", 0.97)}),
           with("ch03/missed", {missed}),
           with("ch04/worse", {timed("slow", "optimized", 0.5, "SLOWER")}),
           with("ch05/library", {timed("ours", "optimized", 2, "FASTER"), timed("blas", "library", 8, "FASTER")}),
           with("ch06/left", {timed("tried", "optimized", 1.5, "FASTER", 0.01)}),
  };
  EXPECT_EQ(told(run),
            (std::vector<std::string>{
                "Largest gain | ch01/gain | `quick` is 40.0× as fast as `base`, at 50.0 % of the limit.",
                "Nearest to the limit | ch02/limit | `close` reaches 97.0 % of its limit, `base` 10.0 %.",
                "Prediction missed by most | ch03/missed | Predicted for `hoped`: at least 90.0 % of the "
                "limit; measured: 30.0 %.",
                "Backfired | ch04/worse | `slow` takes 2.00× the time of `base`.",
                "Library ahead | ch05/library | `blas` is 4.00× as fast as our best, `ours`."}));
  run.experiments.erase(run.experiments.begin() + 2, run.experiments.begin() + 5);
  EXPECT_EQ(lessons_of(run).size(), 3u);
  EXPECT_EQ(lessons_of(run)[2].kind, "Most left to gain");
}

TEST(Lessons, LeaveOutWhatCannotBeBelieved) {
  RunRecord run;
  run.experiments                 = {with("ch01/advisory", {timed("a", "optimized", 90, "FASTER", 0.9)}),
                                     with("ch02/invalid", {timed("b", "optimized", 80, "INVALID", 0.9)}),
                                     with("ch03/base", {timed("c", "optimized", 70, "FASTER", 0.9)})};
  run.experiments[0].points[0].aa = AaControl{1.01, 1.05, true};
  run.experiments[2].points[0].variants[0].status = Outcome::wrong;
  EXPECT_TRUE(lessons_of(run).empty());
  run.experiments[0].points[0].aa = std::nullopt;
  EXPECT_EQ(lessons_of(run).size(), 1u);
}

TEST(Lessons, ASlowdownThatWasPredictedDidNotBackfire) {
  VariantRecord slow = timed("slow", "optimized", 0.5, "SLOWER");
  slow.prediction    = PredictionScore{"ratio 0.5", true};
  RunRecord run;
  run.experiments = {with("ch01/x", {slow})};
  EXPECT_TRUE(lessons_of(run).empty());
}

TEST(Lessons, FillUpWithFurtherGains) {
  RunRecord run;
  for (int i = 2; i < 9; ++i)
    run.experiments.push_back(with("ch01/x" + std::to_string(i), {timed("a", "optimized", i, "FASTER")}));
  const auto lessons = lessons_of(run);
  ASSERT_EQ(lessons.size(), 5u);
  EXPECT_EQ(lessons[0].experiment, 6u);
  EXPECT_EQ(lessons[1].kind, "Also gained");
  EXPECT_EQ(lessons[4].experiment, 2u);
  EXPECT_TRUE(lessons_of({}).empty());
}

TEST(OverviewChart, MarksEveryExperimentWithARatioAndNumbersTheLessons) {
  const RunRecord run    = large_fixture_run();
  const auto lessons     = lessons_of(run);
  const std::string html = overview_chart(run, lessons);
  const auto count       = [&](const std::string& what) {
    size_t found = 0;
    for (size_t at = html.find(what); at != std::string::npos; at = html.find(what, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("class=\"mark "), 84u) << "one has no ratio";
  for (size_t n = 1; n <= lessons.size(); ++n) EXPECT_EQ(count(">" + std::to_string(n) + "</b>"), 1u) << n;
  EXPECT_EQ(count("of the limit\""), 57u) << "the others lie on the shelf";
  EXPECT_EQ(overview_chart({}, {}), "");
}

}  // namespace
}  // namespace fathom::report
