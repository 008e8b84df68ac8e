#include "cli/aa_summary.h"

#include <gtest/gtest.h>

namespace fathom::cli {
namespace {

lab::ExperimentRecord experiment(std::string id, std::string again, std::string heavier) {
  lab::PointRecord point{.baseline = "plain"};
  point.variants.push_back({.id = "plain", .kind = "baseline"});
  point.variants.push_back(
      {.id = "plain:again", .ratio = lab::Ratio{1.03, 1.025, 1.04}, .verdict = std::move(again)});
  point.variants.push_back({.id = "plain:heavier", .verdict = std::move(heavier)});
  return {.id = std::move(id), .points = {point}};
}

lab::ExperimentRecord session(std::string id, bool advisory) {
  lab::PointRecord point{.cache = "session", .baseline = "plain", .aa = lab::AaControl{0.9, 0.95, advisory}};
  point.variants.push_back({.id = "plain", .kind = "baseline"});
  return {.id = std::move(id), .points = {point}};
}

TEST(AaSummary, SameAndInconclusiveAreRight) {
  const AaSummary seen =
      aa_summary({.experiments = {experiment("ch01/a", "SAME", "SLOWER"),
                                  experiment("ch01/b", "INCONCLUSIVE", "SLOWER"), session("ch15/c", false)}});
  EXPECT_EQ(seen.points, 3);
  EXPECT_EQ(seen.heavier, 2);
  EXPECT_TRUE(seen.holds());
  EXPECT_EQ(aa_text(seen), "A/A: 0 false verdicts at 3 points; 5 % of extra work found at 2 of 2 (100 %)\n");
}

TEST(AaSummary, ADifferenceFromItselfIsFalse) {
  const AaSummary seen =
      aa_summary({.experiments = {experiment("ch01/a", "FASTER", "SLOWER"),
                                  experiment("ch01/b", "SLOWER", "SLOWER"), session("ch15/c", true)}});
  EXPECT_EQ(seen.wrong.size(), 3u);
  EXPECT_FALSE(seen.holds());
  EXPECT_NE(aa_text(seen).find("false   ch01/a/plain:again: 1.030 [1.025, 1.040]"), std::string::npos)
      << aa_text(seen);
}

TEST(AaSummary, NineOfTenMustBeFound) {
  lab::RunRecord run;
  for (int i = 0; i < 9; ++i) run.experiments.push_back(experiment("ch01/a", "SAME", "SLOWER"));
  run.experiments.push_back(experiment("ch01/b", "SAME", "INCONCLUSIVE"));
  EXPECT_TRUE(aa_summary(run).holds()) << aa_summary(run).found();
  run.experiments.push_back(experiment("ch01/b", "SAME", "SAME"));
  EXPECT_FALSE(aa_summary(run).holds()) << aa_summary(run).found();
}

TEST(AaSummary, NamesWhatWasNotCompared) {
  const AaSummary seen = aa_summary({.experiments = {{.id = "ch06/gpu", .status = lab::Outcome::skipped}}});
  EXPECT_EQ(seen.none, std::vector<std::string>{"ch06/gpu"});
  EXPECT_TRUE(seen.holds()) << "nothing was claimed";
}

}  // namespace
}  // namespace fathom::cli
